// Subscribers: how far behind, in bytes and in seconds.

import { html } from "../vendor/htm-preact.js";
import { count, duration, size } from "../lib/format.js";
import { Filters, Pages, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";
import { link } from "../lib/route.js";

const LIMIT = 100;
const MOODS = { live: "good", behind: "dead", away: "lost" };

export function Subscribers({ params }) {
  const { data, problem, at } = usePoll("subscribers", { ...params, limit: LIMIT });
  return html`<h1>Subscribers</h1>
    <${Trouble} problem=${problem} at=${at} />
    <${Filters} view="subscribers" params=${params} fields=${[["name", "Name"]]} />
    ${data && html`<${Table} caption="Subscribers" rows=${data.rows} empty="No subscriber matches."
      columns=${[
        ["subscriber", (row) => (row.name ? html`<a href=${link("ledger", { subscriber: row.name })}>${row.name}</a>` : html`<span class="quiet">no name</span>`)],
        ["pattern", (row) => row.pattern],
        ["state", (row) => html`<span class=${MOODS[row.state] ?? ""}>${row.state}</span>`],
        ["journal ahead", (row) => size(row.waiting_bytes), "number"],
        ["behind", (row) => (row.lag_s ? duration(row.lag_s) : "–"), "number"],
        ["unsettled", (row) => count(row.unsettled), "number"],
        ["to retry", (row) => count(row.again), "number"],
        ["who", (row) => row.peer || (row.members ? `${row.members} members` : "–"), "wide"],
      ]} />
      <${Pages} view="subscribers" params=${params} total=${data.count} limit=${LIMIT} />`}`;
}
