/** The live tail of a topic. The page keeps the newest `ROWS_MAX` records. */

import { get, path } from "./api.js";
import { field, h, input, select } from "./dom.js";
import { number, part, time } from "./format.js";

const ROWS_MAX = 300;
const WAITING_MAX = 1000;

/** @param {any} record @param {boolean} isPretty */
function row(record, isPretty) {
  const open = () => details(record);
  return h("tr", { "data-offset": String(record.offset) },
    h("td", { class: "number" }, record.partition),
    h("td", { class: "number" },
      h("button", { type: "button", "aria-label": `Record ${record.partition}:${record.offset}`, click: open }, record.offset)),
    h("td", {}, time(record.timestamp_ms)),
    h("td", {}, h("pre", {}, part(record.key, false))),
    h("td", {}, h("pre", {}, part(record.value, isPretty))),
    h("td", {}, h("pre", {}, record.headers.map((each) => `${each.name}=${part(each.value, false)}`).join("\n"))));
}

/** Opens one record with its hex and its batch. @param {any} record */
async function details(record) {
  const body = h("div", {}, "Loading ...");
  const shown = h("dialog", { "aria-labelledby": "record-title", close: () => shown.remove() },
    h("h2", { id: "record-title" }, `${record.topic}, partition ${record.partition}, offset ${number(record.offset)}`),
    body, h("p", {}, h("button", { type: "button", click: () => shown.close() }, "Close")));
  document.body.append(shown);
  shown.showModal();
  const block = (title, text) => [h("h3", {}, title), h("pre", { class: "wide", tabindex: "0", "aria-label": title }, text)];
  try {
    const found = await get(path("topics", record.topic, "records", record.partition, record.offset));
    body.replaceChildren(
      ...block("Key", part(found.key, true)), ...block("Value", part(found.value, true)),
      ...block("Value in hex", found.value_hex.join("\n")),
      ...block("The batch on the wire", found.batch.join("\n")));
  } catch (error) {
    body.replaceChildren(h("p", { class: "problem" }, error.message));
  }
}

/** @param {string} topic @param {FormData} form */
function address(topic, form) {
  const query = new URLSearchParams();
  const start = form.get("start");
  for (const name of ["partition", "text", "header"]) if (form.get(name)) query.set(name, String(form.get(name)));
  if (start === "earliest") query.set("start", "earliest");
  if (start === "offset") query.set("offset", String(form.get("offset") || "0"));
  if (start === "time") query.set("time_ms", String(Date.parse(String(form.get("time"))) || 0));
  return `${path("topics", topic, "tail")}?${query}`;
}

/** @param {string} topic @returns {import("./main.js").Page} */
export function tailPage(topic) {
  const rows = h("tbody");
  const status = h("p", { role: "status", id: "tail-status" }, "Not connected.");
  const pause = h("button", { type: "button", "aria-pressed": "false", click: toggle }, "Pause");
  const pretty = input("pretty", { type: "checkbox", checked: true });
  /** @type {any[]} */
  let waiting = [];
  /** @type {EventSource | null} */
  let source = null;
  let isPaused = false;
  let count = 0;

  function toggle() {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Resume" : "Pause";
    if (!isPaused) { add(waiting); waiting = []; }
    say();
  }

  function say() {
    const left = waiting.length ? `, ${number(waiting.length)} waiting` : "";
    status.textContent = `${isPaused ? "Paused" : "Live"}: ${number(count)} records${left}.`;
  }

  /** @param {any[]} records */
  function add(records) {
    rows.prepend(...records.slice(-ROWS_MAX).reverse().map((each) => row(each, pretty.checked)));
    while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
  }

  function close() {
    source?.close();
    source = null;
  }

  function open() {
    close();
    rows.replaceChildren();
    waiting = [];
    count = 0;
    status.textContent = "Connecting ...";
    const opened = new EventSource(address(topic, new FormData(form)));
    source = opened;
    opened.addEventListener("ready", () => { status.textContent = "Live: waiting for records."; });
    opened.addEventListener("records", (event) => {
      const records = JSON.parse(event.data);
      count += records.length;
      if (isPaused) waiting = [...waiting, ...records].slice(-WAITING_MAX);
      else add(records);
      say();
    });
    const end = (sentence) => { opened.close(); status.textContent = sentence; };
    opened.addEventListener("problem", (event) => end(JSON.parse(event.data)));
    opened.addEventListener("end", () => end("The stream has ended; start it again."));
    // Without this the browser would connect again and repeat or skip records without a word.
    opened.addEventListener("error", () => end("The connection is lost, or a filter is not valid; start it again."));
  }

  const form = h("form", { class: "fields", "aria-label": "What to show", submit(event) { event.preventDefault(); open(); } },
    field("Partition", input("partition", { type: "number", min: "0", placeholder: "all" })),
    field("Key or value contains", input("text")),
    field("Header (NAME or NAME=PART)", input("header")),
    field("From", select("start", [["latest", "now"], ["earliest", "the first record"], ["offset", "an offset"], ["time", "a time"]])),
    field("Offset", input("offset", { type: "number", min: "0" })),
    field("Time", input("time", { type: "datetime-local" })),
    h("div", {}, pretty, " ", h("label", { for: "pretty" }, "indent JSON")),
    h("button", { type: "submit" }, "Start"), pause);
  const head = ["Partition", "Offset", "Time", "Key", "Value", "Headers"].map((each) => h("th", { scope: "col" }, each));
  const records = h("div", { class: "scroll", role: "log", "aria-live": "polite", "aria-label": "Records", tabindex: "0" },
    h("table", {}, h("caption", {}, `The newest ${ROWS_MAX} records, the newest first`), h("thead", {}, h("tr", {}, ...head)), rows));
  const back = h("p", {}, h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, "Topic"));
  queueMicrotask(open);
  return { title: `Tail of ${topic}`, body: h("div", {}, back, form, status, records), close };
}
