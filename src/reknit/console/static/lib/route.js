// Which view is shown, with its filters: all of it is in the address, so that it can be sent to a colleague.

import { signal } from "./html.js";

export function parse(hash) {
  const [path, text = ""] = hash.replace(/^#\/?/, "").split("?");
  return { view: path || "ledger", params: Object.fromEntries(new URLSearchParams(text)) };
}

export function link(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export const go = (view, params) => (location.hash = link(view, params));
export const route = signal(parse(location.hash));

addEventListener("hashchange", () => (route.value = parse(location.hash)));
