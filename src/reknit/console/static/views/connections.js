// Everyone who is connected: sessions, tunnels, AMQP clients. One of them can be ended.

import { post } from "../lib/api.js";
import { html, useRef, useState } from "../lib/html.js";
import { count, duration, size } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Filters, Head, Pages, Table, Trouble, Waiting } from "../lib/parts.js";
import { mayChange, notAllowed } from "../lib/rights.js";

const LIMIT = 100;
const DOORS = [["", "all"], ["node", "reknit"], ["http", "HTTP"], ["amqp", "AMQP"]];

export function Connections({ params }) {
  const { data, problem } = useLive({ connections: ["connections", { ...params, limit: LIMIT }] });
  const box = useRef();
  const [one, setOne] = useState(null);
  const [told, setTold] = useState(null);
  const ask = (row) => {
    setOne(row);
    setTold(null);
    box.current.showModal();
  };
  async function end() {
    try {
      await post("connections/end", { connection: one.id });
      box.current.close();
    } catch (problem_) {
      setTold(problem_);
    }
  }
  if (!data.connections) return html`<${Waiting} title="Connections" problem=${problem} />`;
  const { rows, count: total } = data.connections;
  const may = mayChange();
  return html`<${Head} title="Connections" text="Sessions of clients and other nodes, HTTP tunnels and requests, AMQP clients: who, since when, from where, what they hold." />
    <${Trouble} problem=${problem} />
    <${Filters} view="connections" params=${params} fields=${[["name", "Name, address or topic", "any"], ["door", "Door", DOORS]]} />
    <${Table} caption="Connections" rows=${rows} empty="Nobody is connected." keyOf=${(row) => row.id} columns=${[
      ["who", (row) => html`${row.name || row.identity || html`<span class="quiet">no name</span>`}${row.identity && row.name && row.identity !== row.name && html`<div class="small quiet">${row.identity}</div>`}`, "name"],
      ["door", (row) => `${row.door === "node" ? "reknit" : row.door.toUpperCase()}, ${row.kind}`],
      ["from", (row) => row.address],
      ["for", (row) => duration(row.since_s), "number"],
      ["state", (row) => html`<span class=${`chip ${row.state === "blocked" || row.state === "does not read" ? "lost" : ""}`}>${row.state}</span>`],
      ["holds", (row) => row.holds || html`<span class="quiet">–</span>`, "wide"],
      ["unsettled", (row) => count(row.unsettled), "number"],
      ["unsent", (row) => (row.unsent_bytes ? size(row.unsent_bytes) : "–"), "number"],
      ["", (row) => html`<button class="plain lost" disabled=${!may} title=${may ? "" : notAllowed()} aria-label=${`End ${row.name || row.address}`} onClick=${() => ask(row)}>End…</button>`, "act"],
    ]} />
    <${Pages} view="connections" params=${params} total=${total} limit=${LIMIT} />
    <dialog ref=${box} aria-labelledby="end-title">
      <h2 id="end-title">End the connection of ${one?.name || one?.address}?</h2>
      <p>The client is told that an operator ended it. It may connect again; what is durable stays its own. The audit trail gets an entry.</p>
      ${told && html`<p class="note wrong" role="alert">${told.message}</p>`}
      <div class="actions"><button class="danger" onClick=${end}>End it</button><button onClick=${() => box.current.close()}>Leave it</button></div>
    </dialog>`;
}
