/** The list of topics, and the page of one. */

import { get, path } from "./api.js";
import { chart } from "./chart.js";
import { createTopic, deleteTopic, produce } from "./changes.js";
import { problems, settings } from "./cluster.js";
import { figures, h, replace, table } from "./dom.js";
import { bytes, number } from "./format.js";

const TOPICS = [
  { title: "Topic", cell: (t) => h("a", { href: `#/topics/${encodeURIComponent(t.topic)}` }, t.topic) },
  { title: "Partitions", isNumber: true, cell: (t) => number(t.partitions) },
  { title: "Offsets", isNumber: true, cell: (t) => number(t.offsets) },
  { title: "Size", isNumber: true, cell: (t) => bytes(t.size_bytes) },
  { title: "Records/s", isNumber: true, cell: (t) => number(t.records_per_s) },
  { title: "Bytes/s", isNumber: true, cell: (t) => bytes(t.bytes_per_s) },
];
const PARTITIONS = [
  { title: "Partition", isNumber: true, cell: (p) => p.partition },
  { title: "Leader", cell: (p) => p.leader ?? "none" },
  { title: "Replicas", cell: (p) => p.replicas.join(", ") },
  { title: "In sync", cell: (p) => p.isr.join(", ") },
  { title: "Start", isNumber: true, cell: (p) => number(p.start) },
  { title: "End", isNumber: true, cell: (p) => number(p.end) },
  { title: "Size", isNumber: true, cell: (p) => bytes(p.size_bytes) },
];

/** @param {boolean} canChange @returns {import("./main.js").Page} */
export function topicsPage(canChange) {
  const list = h("div", {}, "Loading ...");
  const actions = h("p", { class: "fields" });
  if (canChange) actions.append(h("button", { type: "button", click: createTopic }, "Create topic ..."));
  return {
    title: "Topics",
    body: h("div", {}, actions, list),
    async update(signal) {
      const found = await get("/api/topics", signal);
      const note = found.left_out ? h("p", {}, `${number(found.left_out)} more topics are not shown.`) : null;
      replace(list, h("div", {}, problems(found.errors), table("Topics", TOPICS, found.topics), note));
    },
  };
}

/** @param {string} topic @param {boolean} canChange @returns {import("./main.js").Page} */
export function topicPage(topic, canChange) {
  const charts = [
    chart("Records per second", `records ${topic}`, number),
    chart("Growth in bytes per second", `bytes ${topic}`, bytes),
  ];
  const tables = h("div", {}, "Loading ...");
  const configs = h("div");
  const actions = h("p", { class: "fields" }, h("a", { href: `#/topics/${encodeURIComponent(topic)}/tail` }, "Live tail"));
  if (canChange) {
    actions.append(
      h("button", { type: "button", click: () => produce(topic) }, "Send a record ..."),
      h("button", { type: "button", class: "danger", click: () => deleteTopic(topic) }, "Delete topic ..."));
  }
  return {
    title: `Topic ${topic}`,
    body: h("div", {}, actions, tables, h("h2", {}, "Rates"),
      h("div", { class: "charts" }, ...charts.map((each) => each.figure)), h("h2", {}, "Settings"), configs),
    async update(signal) {
      const found = await get(path("topics", topic), signal);
      replace(tables,
        problems(found.errors),
        figures([
          ["Offsets", number(found.offsets)], ["Size", bytes(found.size_bytes)],
          ["Records/s", number(found.records_per_s)], ["Bytes/s", bytes(found.bytes_per_s)],
        ]),
        h("h2", {}, "Partitions"), table("Partitions", PARTITIONS, found.partition_list));
      if (!configs.hasChildNodes()) configs.replaceChildren(settings(found.configs));
      await Promise.all(charts.map((each) => each.update(signal)));
    },
  };
}
