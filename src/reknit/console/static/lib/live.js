// Figures that the node sends whenever they change, over its own stream client. While the node is away the last ones stay,
// and `link` says so. A page that nobody sees is not sent anything.

import { stream } from "/reknit.js";
import { Problem, get, query, token } from "./api.js";
import { signal, useEffect, useState } from "./html.js";

/** How the page is connected: [state, why]. */
export const link = signal(["opening", ""]);
/** When the last figures came. */
export const heardAt = signal(0);
const HIDDEN_MS = 20_000;

/** The newest answers to some resources, by name: `asked` is {name: [path, params]}. */
export function useLive(asked) {
  const key = JSON.stringify(asked);
  const secret = token.value;
  const [found, setFound] = useState({ data: {}, problem: null });
  useEffect(() => {
    const names = Object.keys(asked);
    const paths = names.map((name) => query(...asked[name]));
    const url = `/api/v1/live?${paths.map((path) => `ask=${encodeURIComponent(path)}`).join("&")}`;
    let open = null;
    let timer = null;
    const take = ({ topic, payload }) => {
      const number = Number(topic.split("/")[1]);
      const body = JSON.parse(payload);
      heardAt.value = Date.now();
      setFound((old) =>
        body.problem
          ? { ...old, problem: new Problem(body.problem.status, body.problem.code, body.problem.error), about: names[number] }
          : { data: { ...old.data, [names[number]]: body }, problem: old.about === names[number] ? null : old.problem },
      );
    };
    const state = async (name, why = "") => {
      link.value = [name, why];
      if (name !== "lost" || /HTTP/.test(why) === false) return;
      // the stream was refused: ask once as a plain request, which says why
      await get(...asked[names[0]]).catch((problem) => setFound((old) => ({ ...old, problem, about: names[0] })));
    };
    const start = () => {
      clearTimeout(timer);
      open ??= stream(url, { token: secret, via: "fetch", afterLost: "live", onevent: take, onstate: state });
    };
    const stop = () => {
      open?.close();
      open = null;
    };
    const look = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(stop, HIDDEN_MS);
      else start();
    };
    start();
    document.addEventListener("visibilitychange", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(timer);
      stop();
    };
  }, [key, secret]);
  return found;
}

/** An answer that is asked for once, and again when the parameters change. `again()` asks now. */
export function useOnce(path, params = {}, isWanted = true) {
  const [found, setFound] = useState({ data: null, problem: null, isBusy: isWanted });
  const [turn, setTurn] = useState(0);
  const key = query(path, params);
  const secret = token.value;
  useEffect(() => {
    if (!isWanted) return undefined;
    const stop = new AbortController();
    setFound((old) => ({ ...old, isBusy: true }));
    get(path, params, stop.signal).then(
      (data) => stop.signal.aborted || setFound({ data, problem: null, isBusy: false }),
      (problem) => stop.signal.aborted || setFound((old) => ({ ...old, problem, isBusy: false })),
    );
    return () => stop.abort();
  }, [key, secret, turn, isWanted]);
  return { ...found, again: () => setTurn((at) => at + 1) };
}
