// Requests to the node. A token that a person enters stays in this tab, and goes into a header, never into an address.

const KEY = "reknit.token";

export class Problem extends Error {
  constructor(status, code, text) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
  dispatchEvent(new Event("token"));
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let answer;
  try {
    answer = await fetch(`/api/v1/${path}`, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Problem(0, "UNAVAILABLE", "the node does not answer; trying again");
  }
  const body = await answer.json().catch(() => ({ code: "INTERNAL", error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Problem(answer.status, body.code, body.error);
  return body;
}

export function get(path, params = {}, signal) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return ask(query ? `${path}?${query}` : path, { signal });
}

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
