// One event: its payload, and what became of it.

import { html } from "../vendor/htm-preact.js";
import { count, duration, payload, time } from "../lib/format.js";
import { Filters, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";

const MOODS = { accepted: "good", dead_lettered: "dead", lost: "lost" }
const NAMES = { dead_lettered: "dead-lettered", in_flight: "in flight" };

export function OneEvent({ params }) {
  return html`<h1>One event</h1>
    <p class="quiet">An event is known by its source and its number there. reknit prints them as SOURCE:SEQ.</p>
    <${Filters} view="event" params=${params} fields=${[["topic", "Topic"], ["id", "Event (SOURCE:SEQ)"]]} />
    ${params.id && params.topic && html`<${Found} params=${params} key=${params.id} />`}`;
}

function Found({ params }) {
  const { data, problem, at } = usePoll("event", { topic: params.topic, id: params.id });
  if (!data) return html`<${Trouble} problem=${problem} at=${at} />`;
  const { event, outcomes, attempts } = data;
  return html`
    <${Trouble} problem=${problem} at=${at} />
    ${event
      ? html`<dl>
            <dt>published</dt><dd>${time(event.time_us)}</dd>
            <dt>time to live</dt><dd>${event.ttl_ms ? duration(event.ttl_ms / 1000) : "for ever"}</dd>
            <dt>priority</dt><dd>CS${event.priority}</dd>
            ${Object.entries(event.headers).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
            <dt>payload</dt><dd>${count(event.payload.bytes)} bytes</dd>
          </dl>
          <pre tabindex="0">${payload(event.payload)}</pre>`
      : html`<p class="note">This node does not hold the event: retention removed it, or it was never here.</p>`}
    <h2>What became of it</h2>
    <${Table} caption="Outcomes" rows=${outcomes} empty="No durable subscriber is owed it."
      columns=${[
        ["subscriber", (row) => row.subscriber],
        ["outcome", (row) => html`<span class=${MOODS[row.outcome] ?? ""}>${NAMES[row.outcome] ?? row.outcome}</span>`],
      ]} />
    ${attempts.length > 0 &&
    html`<h2>Attempts</h2>
      <${Table} caption="Attempts" rows=${attempts}
        columns=${[
          ["sent", (row) => time(row.sent_us)],
          ["node", (row) => row.node],
          ["path", (row) => row.path],
          ["outcome", (row) => row.outcome || "in flight"],
          ["took", (row) => (row.ended_us ? duration((row.ended_us - row.sent_us) / 1e6) : "–"), "number"],
          ["", (row) => row.text, "wide"],
        ]} />`}`;
}
