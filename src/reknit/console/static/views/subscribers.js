// Subscribers: how far behind, in bytes and in seconds; and work queues.

import { html } from "../lib/html.js";
import { count, duration, size } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Filters, Head, Pages, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";
import { Queues } from "./topic.js";

const LIMIT = 100;
const MOODS = { live: "good", behind: "", away: "lost" };

export function Subscribers({ params }) {
  const { data, problem } = useLive({ subscribers: ["subscribers", { ...params, limit: LIMIT }], queues: ["queues"] });
  if (!data.subscribers) return html`<${Waiting} title="Subscribers" problem=${problem} />`;
  const { rows, count: total } = data.subscribers;
  return html`<${Head} title="Subscribers" text="Those that are furthest behind first. One with a name is durable: while it is away, its events wait in the journal." />
    <${Trouble} problem=${problem} />
    <${Filters} view="subscribers" params=${params} fields=${[["name", "Name", "any"]]} />
    <${Table} caption="Subscribers" rows=${rows}
      empty=${params.name ? "No subscriber matches." : { title: "No subscriber", text: "Subscribe in a terminal, or in your own program.", command: "reknit sub 'plant/**' --name audit" }}
      columns=${[
        ["subscriber", (row) => (row.name ? html`<a href=${link("ledger", { subscriber: row.name })}>${row.name}</a>` : html`<span class="quiet">without a name</span>`), "name"],
        ["topics", (row) => row.pattern],
        ["state", (row) => html`<span class=${`chip ${MOODS[row.state] ?? ""}`}>${row.state}</span>`],
        ["lag", (row) => (row.lag_s ? duration(row.lag_s) : "–"), "number"],
        ["journal ahead", (row) => (row.waiting_bytes ? size(row.waiting_bytes) : "–"), "number"],
        ["unsettled", (row) => count(row.unsettled), "number"],
        ["to retry", (row) => count(row.again), "number"],
        ["who", (row) => (row.peer ? html`<a href=${link("connections", { name: row.peer.split(" (")[0] })}>${row.peer}</a>` : row.members ? `${row.members} members` : "–"), "wide"],
      ]} />
    <${Pages} view="subscribers" params=${params} total=${total} limit=${LIMIT} />
    ${data.queues?.length > 0 && html`<h2>Work queues</h2><${Queues} rows=${data.queues} />`}`;
}
