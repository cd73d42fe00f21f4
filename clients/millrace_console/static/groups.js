/** The list of groups, and the page of one. */

import { get, path } from "./api.js";
import { chart } from "./chart.js";
import { resetGroup } from "./changes.js";
import { problems } from "./cluster.js";
import { figures, h, replace, table } from "./dom.js";
import { number } from "./format.js";

const GROUPS = [
  { title: "Group", cell: (g) => h("a", { href: `#/groups/${encodeURIComponent(g.group)}` }, g.group) },
  { title: "State", cell: (g) => g.state },
  { title: "Members", isNumber: true, cell: (g) => number(g.members) },
  { title: "Lag", isNumber: true, cell: (g) => number(g.lag) },
];
const MEMBERS = [
  { title: "Member", cell: (m) => m.instance_id ?? m.member_id },
  { title: "Client", cell: (m) => m.client_id },
  { title: "Host", cell: (m) => m.host },
  { title: "Partitions", cell: (m) => m.assignment.join(", ") || "-" },
];
const PARTITIONS = [
  { title: "Topic", cell: (p) => p.topic },
  { title: "Partition", isNumber: true, cell: (p) => p.partition },
  { title: "Committed", isNumber: true, cell: (p) => number(p.committed) },
  { title: "End", isNumber: true, cell: (p) => number(p.end) },
  { title: "Lag", isNumber: true, cell: (p) => number(p.lag) },
  { title: "Member", cell: (p) => p.member ?? "-" },
];

/** @returns {import("./main.js").Page} */
export function groupsPage() {
  const list = h("div", {}, "Loading ...");
  return {
    title: "Groups",
    body: list,
    async update(signal) {
      const found = await get("/api/groups", signal);
      const note = found.left_out ? h("p", {}, `${number(found.left_out)} more groups are not shown.`) : null;
      replace(list, h("div", {}, problems(found.errors), table("Groups", GROUPS, found.groups), note));
    },
  };
}

/** @param {string} group @param {boolean} canChange @returns {import("./main.js").Page} */
export function groupPage(group, canChange) {
  const lag = chart("Lag in records", `lag ${group}`, number);
  const tables = h("div", {}, "Loading ...");
  const actions = h("p", { class: "fields" });
  let topics = [];
  if (canChange) {
    actions.append(h("button", { type: "button", click: () => resetGroup(group, topics) }, "Reset offsets ..."));
  }
  return {
    title: `Group ${group}`,
    body: h("div", {}, actions, h("div", { class: "charts" }, lag.figure), tables),
    async update(signal) {
      const found = await get(path("groups", group), signal);
      topics = [...new Set(found.partitions.map((each) => each.topic))];
      replace(tables,
        problems(found.errors),
        figures([
          ["State", found.state], ["Generation", number(found.generation)],
          ["Assignor", found.assignor || "-"], ["Lag", number(found.lag)],
        ]),
        h("h2", {}, "Members"), table("Members", MEMBERS, found.members),
        h("h2", {}, "Partitions"), table("Committed offsets and lag", PARTITIONS, found.partitions));
      await lag.update(signal);
    },
  };
}
