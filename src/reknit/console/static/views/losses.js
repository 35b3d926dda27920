// Every loss is a range, with its reason.

import { html } from "../vendor/htm-preact.js";
import { count } from "../lib/format.js";
import { Filters, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";

export function Losses({ params }) {
  const { data, problem, at } = usePoll("losses", { ...params, limit: 500 }, 5000);
  return html`<h1>Losses</h1>
    <p class="quiet">Each range of events that a durable subscriber will never get. It was told, or will be when it connects.</p>
    <${Trouble} problem=${problem} at=${at} />
    <${Filters} view="losses" params=${params} fields=${[["topic", "Topics"]]} />
    ${data && html`<${Table} caption="Losses" rows=${data.rows} empty="Nothing is lost."
      columns=${[
        ["subscriber", (row) => row.subscriber],
        ["topic", (row) => row.topic],
        ["source", (row) => html`<code>${row.source}</code>`],
        ["events", (row) => `${count(row.start)} to ${count(row.stop - 1)}`, "number"],
        ["count", (row) => html`<span class="lost">${count(row.stop - row.start)}</span>`, "number"],
        ["reason", (row) => row.reason || "–"],
        ["the subscriber", (row) => (row.is_confirmed ? "knows" : "has not confirmed it yet")],
      ]} />
      ${!data.is_end && html`<p class="quiet">There are more: narrow the topics.</p>`}`}`;
}
