/**
 * Elements of the page. Text is always inserted as text: nothing here or elsewhere parses markup.
 */

/**
 * @param {string} tag
 * @param {Record<string, string | boolean | ((event: any) => void)>} attributes
 *   a function is a listener of the event of its name; false leaves an attribute out
 * @param {...(Node | string | number | null)} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return element;
}

/** @typedef {{title: string, isNumber?: boolean, cell: (row: any) => Node | string | number}} Column */

/**
 * A table that scrolls sideways where it is too wide.
 * @param {string} caption
 * @param {Column[]} columns
 * @param {any[]} rows
 */
export function table(caption, columns, rows) {
  const kind = (column) => ({ class: column.isNumber ? "number" : "" });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, rows.length ? caption : `${caption}: none`),
      h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col", ...kind(c) }, c.title)))),
      h("tbody", {}, ...rows.map((row) =>
        h("tr", {}, ...columns.map((c) => h("td", kind(c), c.cell(row))))))));
}

/**
 * Puts other children into a place. The focus and the scrolled tables stay where they are.
 * @param {HTMLElement} place
 * @param {...(Node | null)} children
 */
export function replace(place, ...children) {
  const reached = () => [...place.querySelectorAll("a, button, [tabindex]")];
  const before = reached();
  const focused = /** @type {any} */ (document.activeElement);
  const index = before.indexOf(focused);
  const address = focused?.getAttribute?.("href");
  const scrolled = [...place.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  place.replaceChildren(...children.filter((child) => child !== null));
  place.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
  if (index < 0) return;
  const after = reached();
  const same = after.find((each) => address && each.getAttribute("href") === address);
  /** @type {any} */ (same ?? after[index])?.focus({ preventScroll: true });
}

/** @param {[string, string | number][]} pairs */
export function figures(pairs) {
  return h("dl", { class: "figures" },
    ...pairs.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}

/**
 * A field of a form with its label.
 * @param {string} title
 * @param {HTMLElement} input has an id
 */
export function field(title, input) {
  return h("div", { class: "field" }, h("label", { for: input.id }, title), input);
}

/** @param {string} id @param {Record<string, string | boolean>} attributes */
export function input(id, attributes = {}) {
  return h("input", { id, name: id, ...attributes });
}

/** @param {string} id @param {[string, string][]} options value and text */
export function select(id, options) {
  return h("select", { id, name: id }, ...options.map(([value, text]) => h("option", { value }, text)));
}
