/** Requests to the console. Each fails with an `Error` whose message is a sentence for the user. */

/** @type {Promise<{csrf_token: string, allow_changes: boolean, user: string}> | null} */
let session = null;

/** @param {...(string | number)} parts of a path below /api */
export function path(...parts) {
  return `/api/${parts.map((each) => encodeURIComponent(each)).join("/")}`;
}

/** @param {string} url @param {RequestInit} options @returns {Promise<any>} */
async function request(url, options = {}) {
  const response = await fetch(url, { credentials: "same-origin", ...options });
  if (response.status === 401) location.assign("/login");
  const body = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (!response.ok) throw new Error(body.error);
  return body;
}

/** @param {string} url @param {AbortSignal} [signal] */
export function get(url, signal) {
  return request(url, { signal });
}

/** The session of this page; asked for once. */
export function current() {
  session ??= request("/api/session");
  return session;
}

/** @param {string} url @param {object} body */
export async function post(url, body) {
  const { csrf_token } = await current();
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf_token };
  return request(url, { method: "POST", headers, body: JSON.stringify(body) });
}
