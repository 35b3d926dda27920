// Events: one by its id, with its way over the fabric; or found by what is in them.

import { html } from "../lib/html.js";
import { count, duration } from "../lib/format.js";
import { useLive, useOnce } from "../lib/live.js";
import { At, Filters, Head, Payload, Table, Trouble } from "../lib/parts.js";
import { link } from "../lib/route.js";
import { Search } from "./search.js";
import { Headers } from "./tail.js";
import { Way } from "./way.js";

const MOODS = { accepted: "good", dead_lettered: "dead", lost: "lost" };
const NAMES = { dead_lettered: "dead-lettered", in_flight: "in flight" };

export function Events({ params }) {
  useLive({ me: ["whoami"] }); // nothing of it is shown but whether the node is there
  return params.id ? html`<${OneEvent} params=${params} key=${params.id} />` : html`<${Search} params=${params} />`;
}

function OneEvent({ params }) {
  const { data, problem, again } = useOnce("event", { topic: params.topic, id: params.id });
  const [source, seq] = params.id.split(":");
  const step = (by) => link("event", { ...params, id: `${source}:${Number(seq) + by}` });
  return html`<${Head} title="One event" text=${html`<code>${params.id}</code>${" on "}<a href=${link("topic", { name: params.topic })}>${params.topic}</a>`}>
      ${Number(seq) > 1 && html`<a href=${step(-1)}>Before</a>`}<a href=${step(1)}>After</a><button onClick=${again}>Look again</button><//>
    <${Trouble} problem=${problem} />
    ${data && html`<div class="columns">
      <section><h2>The event</h2><div class="card pad">${data.event
        ? html`<dl>
            <dt>published</dt><dd><${At} us=${data.event.time_us} millis /></dd>
            <dt>source</dt><dd><a href=${link("sources", { topic: params.topic, source })}><code>${source}</code></a>, event ${count(Number(seq))}</dd>
            <dt>time to live</dt><dd>${data.event.ttl_ms ? duration(data.event.ttl_ms / 1000) : "for ever"}</dd>
            <dt>priority</dt><dd>CS${data.event.priority}</dd>
            ${data.event.key && html`<dt>key</dt><dd><code>${data.event.key}</code></dd>`}
          </dl><${Headers} headers=${data.event.headers} /><br /><${Payload} given=${data.event.payload} />`
        : data.is_hidden
          ? html`<${Payload} isHidden />`
          : html`<p>This node does not hold the event: retention removed it, it was never here, or it was not published yet.</p>`}</div>
        <h2>For each subscriber</h2>
        <${Table} caption="Outcomes" rows=${data.outcomes} empty="No durable subscriber is owed it." columns=${[
          ["subscriber", (row) => html`<a href=${link("ledger", { subscriber: row.subscriber })}>${row.subscriber}</a>`, "name"],
          ["outcome", (row) => html`<span class=${MOODS[row.outcome] ?? "flight"}>${NAMES[row.outcome] ?? row.outcome}</span>`],
        ]} /></section>
      <section><h2>Its way</h2><${Way} topic=${params.topic} id=${params.id} turn=${data} /></section>
    </div>`}`;
}
