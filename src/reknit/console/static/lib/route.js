// Which view is shown, with its filters: all of it is in the address, so that it can be sent to a colleague.

import { useEffect, useState } from "../vendor/htm-preact.js";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { view: path || "ledger", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export const go = (view, params) => (location.hash = link(view, params));

export function useRoute() {
  const [route, setRoute] = useState(parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
