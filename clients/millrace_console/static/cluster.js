/** The pages of the cluster and of a broker. */

import { get, path } from "./api.js";
import { chart } from "./chart.js";
import { figures, h, replace, table } from "./dom.js";
import { bytes, duration, number } from "./format.js";

const BROKERS = [
  { title: "Broker", cell: (b) => h("a", { href: `#/brokers/${b.node_id}` }, b.node_id) },
  { title: "Address", cell: (b) => b.address },
  { title: "Rack", cell: (b) => b.rack ?? "-" },
  { title: "Version", cell: (b) => b.version ?? "no answer" },
  { title: "Uptime", cell: (b) => duration(b.uptime_ms) },
];
const QUORUM = [
  { title: "Broker", cell: (r) => r.node_id },
  { title: "Role", cell: (r) => (r.voter ? "voter" : "observer") },
  { title: "End offset", isNumber: true, cell: (r) => number(r.end_offset) },
  { title: "Lag", isNumber: true, cell: (r) => number(r.lag) },
];
const UNHEALTHY = [
  { title: "Topic", cell: (p) => h("a", { href: `#/topics/${encodeURIComponent(p.topic)}` }, p.topic) },
  { title: "Partition", isNumber: true, cell: (p) => p.partition },
  { title: "Leader", cell: (p) => p.leader ?? "none" },
  { title: "Replicas", cell: (p) => p.replicas.join(", ") },
  { title: "In sync", cell: (p) => p.isr.join(", ") },
];

/** @param {string[]} errors */
export function problems(errors) {
  return h("div", {}, ...errors.map((each) => h("p", { class: "problem" }, each)));
}

/** @returns {import("./main.js").Page} */
export function clusterPage() {
  const charts = [
    chart("Records per second", "cluster records", number),
    chart("Bytes per second", "cluster bytes", bytes),
  ];
  const tables = h("div");
  const body = h("div", {}, tables, h("h2", {}, "Rates"),
    h("div", { class: "charts" }, ...charts.map((each) => each.figure)));
  return {
    title: "Cluster",
    body,
    async update(signal) {
      const found = await get("/api/cluster", signal);
      replace(tables,
        problems(found.errors),
        h("p", { class: "quiet" }, `Cluster ${found.cluster_id ?? "unknown"}`),
        figures([
          ["Controller", found.controller ?? "none"],
          ["Topics", number(found.topics)], ["Partitions", number(found.partitions)],
          ["Groups", number(found.groups)], ["Under-replicated", number(found.unhealthy_count)],
        ]),
        h("h2", {}, "Brokers"), table("Brokers in service", BROKERS, found.brokers),
        h("h2", {}, "Metadata quorum"), table("Replicas of the metadata log", QUORUM, found.quorum),
        h("h2", {}, "Partitions with missing replicas"),
        table("Partitions without a leader or with a replica that is not in sync", UNHEALTHY, found.unhealthy));
      await Promise.all(charts.map((each) => each.update(signal)));
    },
  };
}

/** Settings in force. @param {any[]} configs */
export function settings(configs) {
  return table("Settings in force", [
    { title: "Setting", cell: (c) => h("code", {}, c.name) },
    { title: "Value", cell: (c) => c.value },
    { title: "From", cell: (c) => c.source },
    { title: "Meaning", cell: (c) => c.doc },
  ], configs);
}

/** @param {string} nodeId @returns {import("./main.js").Page} */
export function brokerPage(nodeId) {
  const body = h("div", {}, "Loading ...");
  let isShown = false;
  return {
    title: `Broker ${nodeId}`,
    body,
    async update(signal) {
      if (isShown) return;
      const found = await get(path("brokers", nodeId, "configs"), signal);
      body.replaceChildren(settings(found.configs));
      isShown = true;
    },
  };
}
