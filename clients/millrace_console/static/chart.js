/** A line over time, as SVG. */

import { get } from "./api.js";
import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;

/**
 * The path of a line; a value that is not known interrupts it.
 * @param {number[]} times
 * @param {(number | null)[]} values
 * @param {number} top the value at the upper edge
 */
export function line(times, values, top) {
  const first = times[0];
  const span = Math.max(1, times[times.length - 1] - first);
  let isDrawing = false;
  let found = "";
  times.forEach((time, index) => {
    const value = values[index];
    if (value === null) { isDrawing = false; return; }
    const x = ((time - first) / span) * WIDTH;
    const y = HEIGHT - (value / (top || 1)) * (HEIGHT - 8) - 4;
    found += `${isDrawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isDrawing = true;
  });
  return found;
}

/**
 * @param {string} title
 * @param {string} series its name at the console
 * @param {(value: number) => string} format
 */
export function chart(title, series, format) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  const drawn = document.createElementNS(SVG, "path");
  svg.append(drawn);
  const caption = h("figcaption", {}, title);
  const figure = h("figure", { "data-series": series }, svg, caption);
  /** @param {AbortSignal} signal */
  async function update(signal) {
    const { times_ms: times, values } = await get(`/api/history?series=${encodeURIComponent(series)}`, signal);
    const known = values.filter((value) => value !== null);
    if (!known.length) { caption.textContent = `${title}: not known yet`; return; }
    const top = Math.max(...known);
    const minutes = Math.max(1, Math.round((times[times.length - 1] - times[0]) / 60000));
    drawn.setAttribute("d", line(times, values, top));
    caption.textContent =
      `${title}: ${format(known[known.length - 1])} now, at most ${format(top)} in ${minutes} min`;
    svg.setAttribute("aria-label", caption.textContent);
  }
  return { figure, update };
}
