/** Numbers and records as text. */

const count = new Intl.NumberFormat("en");

/** @param {number | null | undefined} value */
export function number(value) {
  return value === null || value === undefined ? "-" : count.format(Math.round(value));
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

/** @param {number | null | undefined} milliseconds */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "-";
  const seconds = Math.floor(milliseconds / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = parts.find(([each]) => seconds >= each) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** @param {number} milliseconds since the epoch */
export function time(milliseconds) {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}

/**
 * A key, a value or a header.
 * @param {{size: number, cut: boolean, text?: string, json?: string, hex?: string} | null} part
 * @param {boolean} isPretty
 */
export function part(part, isPretty) {
  if (part === null) return "null";
  const text = part.text === undefined ? `hex: ${part.hex}` : (isPretty && part.json) || part.text;
  return part.cut ? `${text} ... (cut, ${number(part.size)} bytes)` : text;
}
