// Dead letters: look inside, choose, count, redrive, drop, export.

import { html, useState } from "../lib/html.js";
import { count, fromLocal, plural, shortId } from "../lib/format.js";
import { useLive, useOnce } from "../lib/live.js";
import { At, Filters, Head, Payload, Table, Trouble, Waiting } from "../lib/parts.js";
import { go, link } from "../lib/route.js";
import { Orders } from "./letter_orders.js";
import { Headers } from "./tail.js";

const LIMIT = 50;
const FIELDS = [["reason", "Reason", "any"], ["topic", "Topics", "plant/**"], ["subscriber", "Subscriber", "any"], ["code", "Code", "any"], ["since", "Since", "datetime-local"], ["until", "Until", "datetime-local"]];

export function Letters({ params }) {
  const { before, since, until, ...rest } = params;
  const wanted = { ...rest, ...(since ? { since_us: fromLocal(since) } : {}), ...(until ? { until_us: fromLocal(until) } : {}) };
  const { data, problem, again } = useOnce("dead-letters", { ...wanted, before, limit: LIMIT });
  const counts = useLive({ summary: ["summary"] }).data.summary?.dead_letters ?? data;
  const [chosen, setChosen] = useState(new Set());
  if (!data) return html`<${Waiting} title="Dead letters" problem=${problem} />`;
  const toggle = (number) => setChosen((old) => {
    const made = new Set(old);
    if (!made.delete(number)) made.add(number);
    return made;
  });
  const isWhole = data.letters.length > 0 && data.letters.every((row) => chosen.has(row.number));
  const all = () => setChosen(isWhole ? new Set() : new Set(data.letters.map((row) => row.number)));
  return html`<${Head} title="Dead letters" text="Events that ended undelivered, each with its reason. Nothing is consumed by looking at it."><button onClick=${again}>Look again</button><//>
    <${Trouble} problem=${problem} />
    <div class="tiles">
      <div class="tile"><b class=${counts.waiting ? "dead" : ""}>${count(counts.waiting)}</b><span>wait on this node</span></div>
      <div class="tile"><b>${count(counts.redriven)}</b><span>were redriven</span></div>
      <div class="tile"><b>${count(counts.dropped)}</b><span>were dropped</span></div>
    </div>
    <${Filters} view="letters" params=${params} fields=${FIELDS} />
    <${Orders} wanted=${wanted} chosen=${chosen} last=${data.last} onDone=${() => { setChosen(new Set()); again(); }} />
    ${data.letters.length > 0 && html`<label class="check"><input type="checkbox" checked=${isWhole} onChange=${all} />Choose the ${plural(data.letters.length, "dead letter")} of this page</label>`}
    <${Table} caption="Dead letters" rows=${data.letters} keyOf=${(row) => row.number}
      empty=${{ title: Object.values(rest).some(Boolean) ? "No dead letter matches" : "No dead letter", text: "An event becomes one if its subscriber rejects it, if it fails too often, or if its time to live is over." }}
      columns=${[
        ["choose", (row) => html`<input type="checkbox" aria-label=${`choose ${row.id}`} checked=${chosen.has(row.number)} onChange=${() => toggle(row.number)} />`, "top"],
        ["died", (row) => html`<${At} us=${row.died_us} />`, "top"],
        ["event", (row) => html`<a href=${link("event", { topic: row.topic, id: row.id })}><code>${shortId(row.id)}</code></a>`, "top"],
        ["topic", (row) => html`<a href=${link("letters", { ...rest, topic: row.topic })}>${row.topic}</a>`, "top"],
        ["subscriber", (row) => html`<a href=${link("letters", { ...rest, subscriber: row.subscriber })}>${row.subscriber}</a>`, "top"],
        ["reason", (row) => html`<a href=${link("letters", { ...rest, reason: row.reason })} class="dead">${row.reason}</a><div class="small quiet">${row.code}${row.redriven ? `, redriven ${row.redriven} times` : ""}</div>`, "top"],
        ["attempts", (row) => count(row.attempts), "number top"],
        ["what was said", (row) => html`${row.text}<details><summary class="small">Look inside</summary><${Payload} given=${row.payload} isHidden=${data.is_hidden} /><${Headers} headers=${row.headers} /></details>`, "wide top"],
      ]} />
    <nav class="pages" aria-label="Pages">
      ${before && html`<button onClick=${() => go("letters", { ...rest, since, until })}>Newest</button>`}
      ${!data.is_end && html`<button onClick=${() => go("letters", { ...params, before: data.next })}>Older</button>`}
    </nav>`;
}
