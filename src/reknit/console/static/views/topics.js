// Topics, and one topic with its events as they come.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { stream } from "/reknit.js";
import { token } from "../lib/api.js";
import { count, payload } from "../lib/format.js";
import { Filters, Pages, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";
import { link } from "../lib/route.js";

const LIMIT = 100;
const SHOWN_MAX = 200;
const PAINT_MS = 250;
const ORDERS = [["", "by name"], ["events", "most events"], ["sources", "most sources"], ["gaps", "most gaps"]];

export function Topics({ params }) {
  const { data, problem, at } = usePoll("topics", { ...params, limit: LIMIT });
  return html`<h1>Topics</h1>
    <${Trouble} problem=${problem} at=${at} />
    <${Filters} view="topics" params=${params} fields=${[["topic", "Topics, such as plant/**"], ["order", "Order", ORDERS]]} />
    ${data && html`<${Table} caption="Topics" rows=${data.rows} empty="No topic matches. Publish one: reknit pub plant/line1/temp 21.5"
      columns=${[
        ["topic", (row) => html`<a href=${link("topic", { name: row.topic })}>${row.topic}</a>`],
        ["events", (row) => count(row.events), "number"],
        ["per second", (row) => count(row.rate), "number"],
        ["sources", (row) => count(row.sources), "number"],
        ["gaps", (row) => (row.gaps ? html`<span class="lost">${count(row.gaps)}</span>` : "0"), "number"],
      ]} />
      <${Pages} view="topics" params=${params} total=${data.count} limit=${LIMIT} />`}`;
}

export function Topic({ params }) {
  const name = params.name ?? "";
  const { data, problem, at } = usePoll("ledger", { topic: name, limit: 100 });
  return html`<h1>${name}</h1>
    <${Trouble} problem=${problem} at=${at} />
    ${data && html`<${Table} caption="Subscribers of this topic" rows=${data.rows} empty="No durable subscriber is owed its events."
      columns=${[
        ["subscriber", (row) => html`<a href=${link("ledger", { subscriber: row.subscriber })}>${row.subscriber}</a>`],
        ["published", (row) => count(row.published), "number"],
        ["accepted", (row) => count(row.accepted), "number"],
        ["dead", (row) => html`<a href=${link("letters", { topic: name, subscriber: row.subscriber })}>${count(row.dead_lettered)}</a>`, "number"],
        ["lost", (row) => html`<a href=${link("losses", { topic: name })}>${count(row.lost)}</a>`, "number"],
        ["in flight", (row) => count(row.in_flight), "number"],
      ]} />`}
    <h2>Live</h2>
    <${Tail} topic=${name} key=${name} />`;
}

/** Events as they come: the page keeps the newest, and says how many it left out. */
function Tail({ topic }) {
  const waiting = useRef([]);
  const left = useRef(0);
  const [shown, setShown] = useState([]);
  const [state, setState] = useState(["opening", ""]);
  const [isPaused, setPaused] = useState(false);
  const paused = useRef(false);
  paused.current = isPaused;
  useEffect(() => {
    const url = `/sse?topic=${encodeURIComponent(topic)}`;
    const one = stream(url, {
      token: token(),
      afterLost: "live",
      onevent: (event) => {
        waiting.current.push(event);
        if (waiting.current.length > SHOWN_MAX) {
          waiting.current.shift();
          left.current += 1;
        }
      },
      onstate: (name, why) => setState([name, why ?? ""]),
    });
    const timer = setInterval(() => {
      if (paused.current || !waiting.current.length) return;
      const fresh = waiting.current.splice(0).reverse();
      setShown((old) => [...fresh, ...old].slice(0, SHOWN_MAX));
    }, PAINT_MS);
    return () => {
      clearInterval(timer);
      one.close();
    };
  }, [topic]);
  return html`<div class="pages">
      <span class="state" role="status">${state[0]}${state[1] && `: ${state[1]}`}</span>
      <button onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
      <span class="quiet">the newest ${SHOWN_MAX} are kept${left.current ? `, ${count(left.current)} were left out` : ""}</span>
    </div>
    <${Table} caption="Newest events" rows=${shown} empty="No event since this page was opened."
      columns=${[
        ["event", (event) => html`<a href=${link("event", { topic: event.topic, id: `${event.source}:${event.seq}` })}><code>${event.source.slice(0, 8)}…:${event.seq}</code></a>`],
        ["topic", (event) => event.topic],
        ["payload", (event) => payload({ text: event.payload ?? "", base64: event.payload_base64 }).slice(0, 300), "wide"],
      ]} />`;
}
