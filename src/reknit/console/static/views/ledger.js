// Home: is every event accounted for, and if not, where is the trouble?

import { html } from "../lib/html.js";
import { count, duration, plural } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Bar, Filters, Lag, NAMES, Number_, Pages, Rate, Spark, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";
import { Plot } from "../lib/plot.js";

const LIMIT = 50;
const ORDERS = [["", "trouble first"], ["lost", "most lost"], ["dead_lettered", "most dead letters"], ["in_flight", "most in flight"], ["published", "most published"], ["accepted", "most accepted"]];

/** Where the losses are. */
const place = (rows) => {
  const row = rows.find((one) => one.lost > 0);
  return row ? html`Look at <a href=${link("ledger", { subscriber: row.subscriber, order: "lost" })}>${row.subscriber}</a>, or at <a href=${link("losses")}>every lost range</a>.` : "";
};

export function Ledger({ params }) {
  const { data, problem } = useLive({ ledger: ["ledger", { ...params, limit: LIMIT }], summary: ["summary"] });
  if (!data.ledger) return html`<${Waiting} title="Ledger" problem=${problem} />`;
  const { totals, subscribers, rows, subscriber_count: known, age_s: age } = data.ledger;
  const { mood, sentence } = data.ledger;
  const summary = data.summary;
  const broken = summary?.journal.problem || (summary?.intake.is_full && summary.intake.why);
  const lately = rows.filter((row) => row.changed_s !== null && row.changed_s !== undefined);
  return html`
    <${Trouble} problem=${problem} />
    ${broken && html`<p class="note wrong" role="alert">Publishers wait: ${broken}</p>`}
    <section class="card verdict" aria-label="The ledger's verdict">
      <h1 class=${mood} aria-live="polite">${sentence}</h1>
      <p class="quiet">${totals.lost > 0 || totals.unbalanced > 0 ? place(subscribers) : "published = accepted + dead-lettered + lost + in flight, for every durable subscriber and topic."}
        ${age > 5 && ` These sums are ${duration(age)} old: the ledger is large.`}</p>
      <${Bar} row=${totals} kind="big" />
      <div class="legend">
        <div><b>${count(totals.published)}</b><span>owed</span></div>
        ${["accepted", "dead_lettered", "lost", "in_flight"].map((name) => html`<div>
          <b>${count(totals[name])}</b><span><i class=${name}></i>${name === "dead_lettered" ? html`<a href=${link("letters")}>${NAMES[name]}</a>` : name === "lost" ? html`<a href=${link("losses")}>lost</a>` : NAMES[name]}</span></div>`)}
        <div><b>${count(totals.rate)}</b><span>ended per second</span></div>
      </div>
    </section>
    ${totals.trend.length > 2 && html`<section class="card plot" aria-label="The last minutes"><${Plot} trend=${totals.trend} waiting=${totals.waiting} /></section>`}
    ${lately.length > 0 && html`<h2>Changed in the last minutes</h2>
      <div class="card pad">${lately.slice(0, 5).map((row) => html`<p><a href=${link("ledger", { subscriber: row.subscriber, topic: row.topic })}>${row.subscriber} on ${row.topic}</a>${": "}
        ${row.lost > 0 && html`<span class="lost">${count(row.lost)} lost</span>`}${row.lost > 0 && row.dead_lettered > 0 && ", "}
        ${row.dead_lettered > 0 && html`<span class="dead">${plural(row.dead_lettered, "dead letter")}</span>`}
        <span class="quiet">, ${row.changed_s < 10 ? "just now" : `${duration(row.changed_s)} ago`}</span></p>`)}</div>`}
    <h2>Subscribers <span class="quiet">${known > subscribers.length ? `${subscribers.length} of ${count(known)}, those with trouble first` : ""}</span></h2>
    <${Table} caption="Subscribers" rows=${subscribers} keyOf=${(row) => row.subscriber}
      empty=${{ title: "No durable subscriber yet", text: "A subscriber with a name is owed every event from then on, also while it is away.", command: "reknit sub '**' --name audit" }}
      columns=${[
        ["subscriber", (row) => html`<a href=${link("ledger", { subscriber: row.subscriber })}>${row.subscriber}</a>`, "name"],
        ...numbers(),
        ["topics", (row) => count(row.topics), "number"],
      ]} />
    <h2>By topic</h2>
    <${Filters} view="ledger" params=${params} fields=${[["topic", "Topics", "plant/**"], ["subscriber", "Subscriber", "any"], ["order", "Order", ORDERS]]} />
    <${Table} caption="The ledger by topic" rows=${rows} empty="No row matches." keyOf=${(row) => `${row.subscriber}\n${row.topic}`}
      columns=${[
        ["topic", (row) => (row.topic === "*" ? "all others" : html`<a href=${link("topic", { name: row.topic })}>${row.topic}</a>`), "name"],
        ["subscriber", (row) => row.subscriber],
        ...numbers(),
      ]} />
    <${Pages} view="ledger" params=${params} total=${data.ledger.count} limit=${LIMIT} />`;
}

const numbers = () => [
  ["outcomes", (row) => (row.balanced === false || row.unbalanced > 0 ? html`<span class="chip lost" title=${row.problems?.join("; ")}>does not balance</span>` : html`<${Bar} row=${row} />`)],
  ["owed", (row) => count(row.published), "number"],
  ["accepted", (row) => count(row.accepted), "number"],
  ["dead", (row) => html`<${Number_} value=${row.dead_lettered} kind="dead" />`, "number"],
  ["lost", (row) => html`<${Number_} value=${row.lost} kind="lost" />`, "number"],
  ["in flight", (row) => html`<${Number_} value=${row.in_flight} kind="" />`, "number"],
  ["lag", (row) => html`<${Lag} row=${row} />`, "number"],
  ["per second", (row) => html`<${Rate} value=${row.rate} />`, "number"],
  ["last 5 min", (row) => html`<${Spark} values=${row.trend} label=${`events per second over the last minutes, ${row.rate} now`} />`],
];
