// Asks the node again and again while the page is visible. The last answer stays, and the page says how old it is.

import { useEffect, useState } from "../vendor/htm-preact.js";
import { get } from "./api.js";

export const EVERY_MS = 2000;

export function usePoll(path, params = {}, everyMs = EVERY_MS) {
  const [state, setState] = useState({ data: null, problem: null, at: 0 });
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    async function look() {
      if (!document.hidden) {
        try {
          const data = await get(path, params, stop.signal);
          if (!stop.signal.aborted) setState({ data, problem: null, at: Date.now() });
        } catch (problem) {
          if (!stop.signal.aborted) setState((old) => ({ ...old, problem }));
        }
      }
      if (!stop.signal.aborted && everyMs) timer = setTimeout(look, everyMs);
    }
    const now = () => {
      clearTimeout(timer);
      look();
    };
    look();
    document.addEventListener("visibilitychange", now);
    addEventListener("token", now);
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", now);
      removeEventListener("token", now);
    };
  }, [path, JSON.stringify(params), everyMs]);
  return state;
}
