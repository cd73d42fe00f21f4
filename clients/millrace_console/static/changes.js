/** The dialogs of changes. Each says what it will do, and does it when its form is submitted. */

import { path, post } from "./api.js";
import { field, h, input, select, table } from "./dom.js";
import { number } from "./format.js";

/**
 * @param {string} title
 * @param {Node[]} fields
 * @param {string} action the text of the button
 * @param {(values: Record<string, string>) => Promise<string>} work returns what was done
 */
function dialog(title, fields, action, work) {
  const said = h("p", { role: "status" });
  const close = h("button", { type: "button", click: () => shown.close() }, "Cancel");
  const submit = h("button", { type: "submit" }, action);
  const form = h("form", {
    class: "column",
    async submit(event) {
      event.preventDefault();
      submit.disabled = true;
      try {
        said.textContent = await work(Object.fromEntries(new FormData(form)));
        said.className = "";
        close.textContent = "Close";
      } catch (error) {
        said.textContent = error.message;
        said.className = "problem";
      }
      submit.disabled = false;
    },
  }, h("h2", { id: "dialog-title" }, title), ...fields, said, h("div", { class: "fields" }, submit, close));
  const shown = h("dialog", { "aria-labelledby": "dialog-title", close: () => shown.remove() }, form);
  document.body.append(shown);
  shown.showModal();
}

/** @param {string} text */
function numberOrNull(text) {
  return text === "" ? null : Number(text);
}

export function createTopic() {
  const fields = [
    field("Name", input("topic", { required: true, maxlength: "249" })),
    field("Partitions (empty: the broker's default)", input("partitions", { type: "number", min: "1" })),
    field("Replicas (empty: the broker's default)", input("replicas", { type: "number", min: "1" })),
  ];
  dialog("Create a topic", fields, "Create", async (values) => {
    const done = await post("/api/topics", {
      topic: values.topic,
      partitions: numberOrNull(values.partitions),
      replication_factor: numberOrNull(values.replicas),
    });
    return `Created ${done.topic} with ${number(done.partitions)} partitions.`;
  });
}

/** @param {string} topic */
export function deleteTopic(topic) {
  const fields = [
    h("p", {}, "All records of ", h("strong", {}, topic), " are deleted. This cannot be undone."),
    field("Type the name of the topic", input("confirm", { required: true, autocomplete: "off" })),
  ];
  dialog("Delete a topic", fields, "Delete", async (values) => {
    await post(path("topics", topic, "delete"), { confirm: values.confirm });
    location.hash = "#/topics";
    return `Deleted ${topic}.`;
  });
}

/** @param {string} topic */
export function produce(topic) {
  const fields = [
    field("Partition (empty: by the key)", input("partition", { type: "number", min: "0" })),
    field("Key (empty: null)", input("key")),
    field("Value", h("textarea", { id: "value", name: "value", rows: "6" })),
  ];
  dialog(`Send a record to ${topic}`, fields, "Send", async (values) => {
    const done = await post(path("topics", topic, "records"), {
      key: values.key || null, value: values.value, partition: numberOrNull(values.partition),
    });
    return `Acknowledged: partition ${done.partition}, offset ${number(done.offset)}.`;
  });
}

/** @param {Record<string, string>} values */
function target(values) {
  if (values.to === "offset") return { offset: Number(values.number) };
  if (values.to === "time") return { time_ms: Date.parse(values.time) };
  return values.to;
}

/** Shows the moves first, and makes them when the form is submitted again. @param {string} group @param {string[]} topics */
export function resetGroup(group, topics) {
  const plan = h("div");
  const fields = [
    h("p", {}, "The group must have no members. The first submit shows the moves, the second makes them."),
    field("Topic", select("topic", topics.map((each) => [each, each]))),
    field("Partition (empty: all)", input("partition", { type: "number", min: "0" })),
    field("To", select("to", [["earliest", "the first record"], ["latest", "the end"],
      ["offset", "an offset"], ["time", "a time"]])),
    field("Offset", input("number", { type: "number", min: "0" })),
    field("Time", input("time", { type: "datetime-local" })),
    plan,
  ];
  let planned = "";
  dialog(`Reset the offsets of ${group}`, fields, "Reset", async (values) => {
    const wanted = { topic: values.topic, partition: numberOrNull(values.partition), to: target(values) };
    const isSame = JSON.stringify(wanted) === planned;
    const done = await post(path("groups", group, "offsets"), { ...wanted, dry_run: !isSame });
    plan.replaceChildren(table("Moves", [
      { title: "Partition", isNumber: true, cell: (m) => m.partition },
      { title: "Committed", isNumber: true, cell: (m) => number(m.committed) },
      { title: "To", isNumber: true, cell: (m) => number(m.to) },
    ], done.moves));
    planned = isSame ? "" : JSON.stringify(wanted);
    return isSame ? "The offsets are reset." : "Submit again to make these moves.";
  });
}
