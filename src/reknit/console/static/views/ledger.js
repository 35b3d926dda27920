// Home: is every event accounted for, and if not, where is the trouble?

import { html } from "../vendor/htm-preact.js";
import { count, duration } from "../lib/format.js";
import { Bar, Filters, Pages, Sparkline, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";
import { link } from "../lib/route.js";

const LIMIT = 50;
const ORDERS = [["", "trouble first"], ["lost", "most lost"], ["dead_lettered", "most dead letters"], ["in_flight", "most in flight"], ["published", "most published"]];

export function sentence(totals, subscribers) {
  if (!subscribers) return ["good", "Nobody is owed an event yet"];
  if (totals.unbalanced) return ["lost", `The ledger does not balance in ${count(totals.unbalanced)} rows`];
  if (totals.lost) return ["lost", `${count(totals.lost)} events are lost, and it is known which`];
  return ["good", "Every event is accounted for"];
}

export function Ledger({ params }) {
  const { data, problem, at } = usePoll("ledger", { ...params, limit: LIMIT });
  const summary = usePoll("summary").data;
  if (!data) return html`<${Trouble} problem=${problem} at=${at} /><h1 class="quiet">${problem ? "No figures" : "Reading the ledger"}</h1>`;
  const { totals, subscribers, rows } = data;
  const [mood, text] = sentence(totals, subscribers.length);
  const letters = summary?.dead_letters.waiting ?? 0;
  return html`
    <${Trouble} problem=${problem} at=${at} />
    <h1 class=${mood} aria-live="polite">${text}</h1>
    <p class="quiet">published = accepted + dead-lettered + lost + in flight, for every durable subscriber and topic.
      ${data.age_s > 5 && ` These sums are ${duration(data.age_s)} old: the ledger is large.`}</p>
    <div class="tiles">
      <div class="tile"><b>${count(totals.published)}</b>published</div>
      <div class="tile"><b class="good">${count(totals.accepted)}</b>accepted</div>
      <div class="tile"><b class="dead">${count(totals.dead_lettered)}</b><a href=${link("letters")}>dead-lettered${letters ? `, ${count(letters)} waiting` : ""}</a></div>
      <div class="tile"><b class=${totals.lost ? "lost" : ""}>${count(totals.lost)}</b><a href=${link("losses")}>lost</a></div>
      <div class="tile"><b>${count(totals.in_flight)}</b>in flight</div>
      <div class="tile"><b>${count(summary?.events_s ?? 0)}</b>events/s <${Sparkline} value=${summary?.events_s} label="events per second, lately" /></div>
    </div>
    <h2>Subscribers</h2>
    <${Table} caption="Subscribers" rows=${subscribers} empty="No durable subscriber yet: reknit sub '**' --name audit makes one."
      columns=${[
        ["subscriber", (row) => html`<a href=${link("ledger", { subscriber: row.subscriber })}>${row.subscriber}</a>`],
        ["", (row) => html`<${Bar} row=${row} />`],
        ...numbers(),
        ["topics", (row) => count(row.topics), "number"],
      ]} />
    <h2>By topic</h2>
    <${Filters} view="ledger" params=${params} fields=${[["topic", "Topics"], ["subscriber", "Subscriber"], ["order", "Order", ORDERS]]} />
    <${Table} caption="The ledger by topic" rows=${rows} empty="No row matches."
      columns=${[
        ["subscriber", (row) => row.subscriber],
        ["topic", (row) => (row.topic === "*" ? "all others" : html`<a href=${link("topic", { name: row.topic })}>${row.topic}</a>`)],
        ["", (row) => html`<${Bar} row=${row} />`],
        ...numbers(),
        ["", (row) => (row.balanced ? html`<span class="good">ok</span>` : html`<span class="lost" title=${row.problems.join("; ")}>wrong</span>`)],
      ]} />
    <${Pages} view="ledger" params=${params} total=${data.count} limit=${LIMIT} />`;
}

const numbers = () => [
  ["published", (row) => count(row.published), "number"],
  ["accepted", (row) => count(row.accepted), "number"],
  ["dead", (row) => (row.dead_lettered ? html`<span class="dead">${count(row.dead_lettered)}</span>` : "0"), "number"],
  ["lost", (row) => (row.lost ? html`<span class="lost">${count(row.lost)}</span>` : "0"), "number"],
  ["in flight", (row) => count(row.in_flight), "number"],
];
