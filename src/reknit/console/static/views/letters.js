// Dead letters: look inside, choose, count, redrive, drop.

import { html, useState } from "../vendor/htm-preact.js";
import { get, post } from "../lib/api.js";
import { count, payload, time } from "../lib/format.js";
import { Filters, Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";
import { go, link } from "../lib/route.js";

const LIMIT = 50;
const STEP = 1000;

export function Letters({ params }) {
  const { data, problem, at } = usePoll("dead-letters", { ...params, limit: LIMIT }, 5000);
  const { before, ...wanted } = params;
  return html`<h1>Dead letters</h1>
    <p class="quiet">Events that ended undelivered, each with its reason. Nothing here is consumed by looking at it.</p>
    <${Trouble} problem=${problem} at=${at} />
    <${Filters} view="letters" params=${params} fields=${[["reason", "Reason"], ["topic", "Topics"], ["subscriber", "Subscriber"], ["code", "Code"]]} />
    ${data && html`
      <p class="quiet">${count(data.waiting)} wait on this node; ${count(data.redriven)} were redriven and ${count(data.dropped)} dropped.</p>
      <${Orders} wanted=${wanted} />
      <${Table} caption="Dead letters" rows=${data.letters} empty="No dead letter matches."
        columns=${[
          ["died", (row) => time(row.died_us)],
          ["event", (row) => html`<a href=${link("event", { topic: row.topic, id: row.id })}><code>${row.id.slice(0, 8)}…:${row.id.split(":")[1]}</code></a>`],
          ["topic", (row) => row.topic],
          ["subscriber", (row) => row.subscriber],
          ["reason", (row) => html`<span class="dead">${row.reason}</span> ${row.code}`],
          ["attempts", (row) => count(row.attempts), "number"],
          ["what was said", (row) => row.text, "wide"],
          ["payload", (row) => html`<details><summary>${row.payload ? `${count(row.payload.bytes)} B` : "none"}</summary><pre>${payload(row.payload)}</pre></details>`],
        ]} />
      <div class="pages">
        <button disabled=${!before} onClick=${() => go("letters", wanted)}>Newest</button>
        <button disabled=${data.is_end} onClick=${() => go("letters", { ...wanted, before: data.next })}>Older</button>
      </div>`}`;
}

/** Count, redrive or drop everything that matches the filters, a page at a time, with progress. */
function Orders({ wanted }) {
  const [said, setSaid] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [sure, setSure] = useState("");
  async function run(path, isDry, done) {
    setSure("");
    setBusy(true);
    try {
      const stop = (await get("dead-letters", { limit: 0 })).last + 1;
      let after = 0, total = 0, isEnd = false;
      while (!isEnd && after < stop) {
        const answer = await post(path, { wanted, after, stop, limit: STEP, is_dry: isDry });
        total += answer.count;
        after = answer.next;
        isEnd = answer.is_end;
        setSaid(`${count(total)} ${done}${isEnd ? "" : " so far"}`);
      }
      setSaid(`${count(total)} ${done}`);
    } catch (problem) {
      setSaid(problem.message);
    }
    setBusy(false);
  }
  const all = Object.values(wanted).some(Boolean) ? "all that match" : "all";
  return html`<div class="pages">
    <button disabled=${isBusy} onClick=${() => run("dead-letters/redrive", true, "match")}>Count ${all}</button>
    <button disabled=${isBusy} class="strong" onClick=${() => setSure("redrive")}>Redrive ${all}</button>
    <button disabled=${isBusy} class="danger" onClick=${() => setSure("drop")}>Drop ${all}</button>
    <span role="status">${said}</span>
    ${sure && html`<div class="note">
      ${sure === "redrive" ? "Publish them again on their topics?" : "Drop them for good?"}
      <button class=${sure === "drop" ? "danger" : "strong"}
        onClick=${() => run(`dead-letters/${sure}`, false, sure === "drop" ? "dropped" : "redriven")}>Yes, ${sure} ${all}</button>
      <button onClick=${() => setSure("")}>No</button>
    </div>`}
  </div>`;
}
