// Every loss is a range, with its reason.

import { html } from "../lib/html.js";
import { count, shortSource } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { At, Filters, Head, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";

export function Losses({ params }) {
  const { data, problem } = useLive({ losses: ["losses", { ...params, limit: 500 }] });
  if (!data.losses) return html`<${Waiting} title="Losses" problem=${problem} />`;
  const { rows, is_end: isEnd } = data.losses;
  return html`<${Head} title="Losses" text="Each range of events that a durable subscriber will never get. It was told, or will be when it connects." />
    <${Trouble} problem=${problem} />
    <${Filters} view="losses" params=${params} fields=${[["topic", "Topics", "plant/**"]]} />
    <${Table} caption="Losses" rows=${rows} empty=${{ title: "Nothing is lost", text: "A loss would be a row here: the source, the range, the reason and the time." }} columns=${[
      ["when", (row) => html`<${At} us=${row.at_us} />`],
      ["subscriber", (row) => html`<a href=${link("ledger", { subscriber: row.subscriber })}>${row.subscriber}</a>`, "name"],
      ["topic", (row) => html`<a href=${link("topic", { name: row.topic })}>${row.topic}</a>`],
      ["source", (row) => html`<a href=${link("sources", { topic: row.topic, source: row.source, start: Math.max(1, row.start - 100), stop: row.stop + 100 })}><code>${shortSource(row.source)}</code></a>`],
      ["events", (row) => `${count(row.start)} to ${count(row.stop - 1)}`, "number"],
      ["count", (row) => html`<span class="lost">${count(row.stop - row.start)}</span>`, "number"],
      ["reason", (row) => row.reason || html`<span class="quiet">was told</span>`],
      ["the subscriber", (row) => (row.is_confirmed ? "knows" : "has not confirmed it yet")],
    ]} />
    ${!isEnd && html`<p class="quiet">There are more: narrow the topics.</p>`}`;
}
