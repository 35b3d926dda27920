// Topics: what is published, how fast, and whether a work queue takes it.

import { html } from "../lib/html.js";
import { count, short } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Filters, Head, Number_, Pages, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";
import { PublishButton } from "./publish.js";

const LIMIT = 100;
const ORDERS = [["", "by name"], ["events", "most events"], ["sources", "most sources"], ["gaps", "most gaps"]];

export function Topics({ params }) {
  const { data, problem } = useLive({ topics: ["topics", { ...params, limit: LIMIT }], summary: ["summary"] });
  if (!data.topics) return html`<${Waiting} title="Topics" problem=${problem} />`;
  return html`<${Head} title="Topics" text=${`${count(data.topics.count)} match; ${count(data.summary?.events_s ?? 0)} events a second on this node.`}><${PublishButton} /><//>
    <${Trouble} problem=${problem} />
    <${Filters} view="topics" params=${params} fields=${[["topic", "Topics", "plant/**"], ["order", "Order", ORDERS]]} />
    <${Table} caption="Topics" rows=${data.topics.rows} keyOf=${(row) => row.topic}
      empty=${params.topic ? "No topic matches." : { title: "No topic yet", text: "A topic begins to exist with its first event.", command: "reknit pub plant/line1/temp 21.5" }}
      columns=${[
        ["topic", (row) => html`<a href=${link("topic", { name: row.topic })}>${row.topic}</a>`, "name"],
        ["per second", (row) => (row.rate ? short(row.rate) : html`<span class="quiet">0</span>`), "number"],
        ["events", (row) => count(row.events), "number"],
        ["sources", (row) => html`<a href=${link("sources", { topic: row.topic })}>${count(row.sources)}</a>`, "number"],
        ["gaps", (row) => html`<${Number_} value=${row.gaps} kind="lost" />`, "number"],
      ]} />
    <${Pages} view="topics" params=${params} total=${data.topics.count} limit=${LIMIT} />`;
}
