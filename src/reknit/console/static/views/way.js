// The way of one event: what each node knows of it, as a timeline over nodes.

import { get } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { count, size } from "../lib/format.js";
import { At, Trouble } from "../lib/parts.js";

const MOODS = { accepted: "good", kept: "good", "dead-lettered": "dead", failed: "dead", rejected: "dead", lost: "lost", "told of the loss": "lost" };

export function Way({ topic, id, turn }) {
  const [found, setFound] = useState({ nodes: null, problem: null, isBusy: true });
  useEffect(() => {
    const stop = new AbortController();
    get("trail", { topic, id }, stop.signal).then(
      ({ nodes }) => setFound({ nodes, problem: null, isBusy: false }),
      (problem) => stop.signal.aborted || setFound({ nodes: null, problem, isBusy: false }),
    );
    return () => stop.abort();
  }, [topic, id, turn]);
  async function further() {
    setFound((old) => ({ ...old, isBusy: true }));
    const [here, ...others] = found.nodes;
    try {
      const [more] = (await get("trail", { topic, id, position: here.next })).nodes;
      const joined = { ...here, next: more.next, scanned: here.scanned + more.scanned, facts: [...here.facts, ...more.facts] };
      setFound({ nodes: [joined, ...others], problem: null, isBusy: false });
    } catch (problem) {
      setFound((old) => ({ ...old, problem, isBusy: false }));
    }
  }
  const { nodes, problem, isBusy } = found;
  if (!nodes) return html`<${Trouble} problem=${problem} />${!problem && html`<div class="skeleton" role="status"><span class="unseen">Asking the nodes</span></div>`}`;
  const [here] = nodes;
  const steps = stepsOf(nodes);
  return html`<div class="card pad">
    <${Trouble} problem=${problem} />
    ${steps.length
      ? html`<ol class="way">${steps.map((step) => html`<li>
          <span class="when">${step.at_us ? html`<${At} us=${step.at_us} millis />` : step.when ?? ""}</span>
          <span class=${`dot ${step.mood}`}></span>
          <div><div><b>${step.what}</b>${step.who && html` ${step.who}`} <span class="quiet small">${step.node}</span></div>
            ${step.note && html`<div class="quiet small">${step.note}</div>`}</div></li>`)}</ol>`
      : html`<p>No node that was asked knows this event.</p>`}
    ${here.next !== null && here.next !== undefined && html`<p class="small"><button disabled=${isBusy} onClick=${further}>Look further</button> <span class="quiet">${size(here.scanned)} of the journal after the event were read, ${size(Math.max(0, here.journal_end - here.next))} are left.</span></p>`}
    ${nodes.filter((one) => one.problem).map((one) => html`<p class="small quiet">${one.node} says nothing: ${one.problem}</p>`)}
  </div>`;
}

/** One list over all nodes: what has a time by time, then where it is now. */
function stepsOf(nodes) {
  const seen = new Set();
  const steps = [];
  for (const one of nodes) {
    for (const fact of one.facts) {
      if (fact.what === "published" && seen.has("published")) continue;
      seen.add(fact.what);
      if (fact.what === "kept") continue;
      const times = fact.attempts > 1 ? `${count(fact.attempts)} attempts` : "";
      const note = [fact.reason, fact.code, fact.text, times].filter(Boolean).join(" · ");
      steps.push({ ...fact, mood: MOODS[fact.what] ?? "", who: fact.who && `by ${fact.who}`.replace("by ", fact.what === "handed out" ? "to " : "by "), note, node: fact.what === "published" ? one.origin || fact.node || "" : `on ${fact.node ?? one.node}` });
    }
  }
  steps.sort((left, right) => left.at_us - right.at_us);
  steps.splice(steps[0]?.what === "published" ? 1 : 0, 0, ...carried(nodes));
  const lakes = new Map(nodes.flatMap((one) => one.lakes).map((row) => [row.lake, row]));
  for (const row of lakes.values()) {
    steps.push({ what: row.is_captured ? (row.is_settled ? "in the tables" : "captured") : "not captured yet", who: `in ${row.lake}`, node: "by Spark", when: "", mood: row.is_captured ? "good" : "open", note: row.is_captured ? (row.is_settled ? "table events, and raw in batches" : "raw in table batches; settling waits for a gap") : "" });
  }
  return steps;
}

/** From the node of the publisher on: where it is kept, and over which links it went. These have no times of their own. */
function carried(nodes) {
  const byName = new Map(nodes.map((one) => [one.node, one]));
  const steps = [];
  const waiting = [nodes.find((one) => one.is_held && one.node === one.origin) ?? nodes.find((one) => one.is_held)];
  const seen = new Set();
  const visit = (one) => {
    if (!one || seen.has(one.node)) return;
    seen.add(one.node);
    const kept = one.facts.find((fact) => fact.what === "kept");
    if (kept) steps.push({ what: "kept", who: "", node: `on ${one.node}`, mood: "good", note: kept.text });
    for (const row of one.forwards) {
      if (seen.has(row.node)) continue;
      steps.push({ what: row.is_stored ? "forwarded" : "to be forwarded", who: `to ${row.node}`, node: `from ${one.node}`, mood: row.is_stored ? "good" : "open", note: row.for.length > 1 ? `for subscribers on ${row.for.join(", ")}` : "" });
      waiting.push(byName.get(row.node));
    }
  };
  while (waiting.length) visit(waiting.shift());
  for (const one of nodes) if (one.is_held) visit(one);
  return steps;
}
