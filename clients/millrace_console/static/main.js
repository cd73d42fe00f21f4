/** Chooses the page by the part of the address behind `#`, and reads it anew every two seconds. */

import { current, post } from "./api.js";
import { h } from "./dom.js";
import { brokerPage, clusterPage } from "./cluster.js";
import { groupPage, groupsPage } from "./groups.js";
import { tailPage } from "./tail.js";
import { topicPage, topicsPage } from "./topics.js";

const INTERVAL_MS = 2000;

/**
 * A page: its title, and `update`, which reads and shows it. `close` ends what it has open.
 * @typedef {{title: string, body: Node, update?: (signal: AbortSignal) => Promise<void>,
 *   close?: () => void}} Page
 */

/** @type {Page | null} */
let page = null;
let ended = new AbortController();

/** @param {string[]} parts @param {boolean} canChange @returns {Page} */
function pageOf(parts, canChange) {
  const [kind, name, part] = parts;
  if (kind === "topics" && part === "tail") return tailPage(name);
  if (kind === "topics") return name ? topicPage(name, canChange) : topicsPage(canChange);
  if (kind === "groups") return name ? groupPage(name, canChange) : groupsPage();
  if (kind === "brokers" && name) return brokerPage(name);
  return clusterPage();
}

/** @param {string} sentence */
function tell(sentence) {
  const place = document.getElementById("problem");
  if (place.textContent !== sentence) place.textContent = sentence;
}

async function update() {
  const { signal } = ended;
  if (!page?.update || document.hidden) return;
  try {
    await page.update(signal);
    if (!signal.aborted) tell("");
  } catch (error) {
    if (!signal.aborted) tell(error.message);
  }
}

async function repeat() {
  await update();
  setTimeout(repeat, INTERVAL_MS);
}

async function show() {
  ended.abort();
  page?.close?.();
  const mine = new AbortController();
  ended = mine;
  const { allow_changes: canChange, user } = await current();
  document.getElementById("user").textContent = user;
  // The address has changed again meanwhile: another call shows the page of that.
  if (mine.signal.aborted) return;
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((each) => {
    try { return decodeURIComponent(each); } catch { return each; }
  });
  page = pageOf(parts, canChange);
  document.title = `${page.title} - millrace console`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === `#/${parts[0] === "brokers" ? "" : parts[0]}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = document.getElementById("main");
  main.replaceChildren(h("h1", {}, page.title), page.body);
  tell("");
  await update();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
document.getElementById("logout").addEventListener("click", async () => {
  try {
    await post("/api/logout", {});
    location.assign("/login");
  } catch (error) {
    tell(error.message);
  }
});
window.addEventListener("hashchange", async () => {
  window.scrollTo(0, 0);
  await show();
  document.getElementById("main").focus({ preventScroll: true });
});
show().then(repeat, (error) => tell(error.message));
