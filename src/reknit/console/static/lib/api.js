// Requests to the node. A token that a person enters stays in this tab, and goes into a header, never into an address.

import { signal } from "./html.js";

const KEY = "reknit.token";

export class Problem extends Error {
  constructor(status, code, text) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

export const token = signal(sessionStorage.getItem(KEY) ?? "");

export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
  token.value = text;
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  let answer;
  try {
    answer = await fetch(`/api/v1/${path}`, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "UNAVAILABLE", "The node does not answer");
  }
  const body = await answer.json().catch(() => ({ code: "INTERNAL", error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Problem(answer.status, body.code, body.error);
  return body;
}

/** A resource with its parameters, as in an address. */
export function query(path, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

export const get = (path, params, signal) => ask(query(path, params), { signal });

export const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
