// Orders for dead letters: count, redrive at a rate, drop, export. Each runs a page at a time, can be stopped, and reports.

import { get, post } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { count, duration, plural } from "../lib/format.js";
import { mayChange, notAllowed } from "../lib/rights.js";

const PAGE = 1000;
const EXPORT_MAX = 100_000;
const DONE = { redrive: "redriven", drop: "dropped", count: "match", export: "exported" };

export function Orders({ wanted, chosen, last, onDone }) {
  const [run, setRun] = useState(null);
  const [asked, setAsked] = useState("");
  const [rate, setRate] = useState("1000");
  const [clears, setClears] = useState(false);
  const [to, setTo] = useState("subscriber");
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const isBusy = run !== null && !run.isOver;
  const some = chosen.size ? `the ${plural(chosen.size, "chosen one")}` : Object.values(wanted).some(Boolean) ? "all that match" : "all";
  const filter = { ...wanted };

  async function start(kind) {
    setAsked("");
    const { signal } = (stop.current = new AbortController());
    const begun = Date.now();
    const report = { kind, count: 0, without: 0, gone: 0, topics: {}, isOver: false, problem: null };
    const tell = (more) => setRun({ ...Object.assign(report, more), took: (Date.now() - begun) / 1000 });
    tell({ total: chosen.size || null });
    try {
      if (kind === "export") await save(filter, chosen, signal, tell);
      else for await (const body of pages(kind, { filter, chosen, last, signal, clears, to, rate: Number(rate) || 0 })) {
        for (const [topic, number] of Object.entries(body.topics ?? {})) report.topics[topic] = (report.topics[topic] ?? 0) + number;
        tell({ count: report.count + body.count, without: report.without + (body.without_payload ?? 0), gone: report.gone + (body.without_subscriber ?? 0), waiting: body.waiting });
      }
    } catch (problem) {
      if (!signal.aborted) tell({ problem });
    }
    tell({ isOver: true, isStopped: signal.aborted });
    if (kind === "redrive" || kind === "drop") onDone();
  }

  const may = mayChange();
  return html`<div class="card pad orders">
    <div class="actions">
      <button disabled=${isBusy} onClick=${() => start("count")}>Count ${some}</button>
      <button disabled=${isBusy || !may} title=${may ? "" : notAllowed()} class="strong" onClick=${() => setAsked("redrive")}>Redrive ${some}</button>
      <button disabled=${isBusy || !may} title=${may ? "" : notAllowed()} class="danger" onClick=${() => setAsked("drop")}>Drop ${some}</button>
      <button disabled=${isBusy} onClick=${() => start("export")}>Export ${some}</button>
      ${!may && html`<span class="small quiet">${notAllowed()}</span>`}
    </div>
    ${asked === "redrive" && html`<div class="note" role="group" aria-label="Redrive">
      <p>They are published again, and have the header <code>redriven</code>.</p>
      <div class="actions">
        <label>To whom<select value=${to} onChange=${(event) => setTo(event.target.value)}><option value="subscriber">the subscriber that each failed at</option><option value="all">every subscriber of their topics</option></select></label>
        <label>Events a second, at most<input value=${rate} inputmode="numeric" onInput=${(event) => setRate(event.target.value)} size="8" /></label>
        <label class="check"><input type="checkbox" checked=${clears} onChange=${() => setClears(!clears)} />without their time to live</label>
        <button class="strong" onClick=${() => start("redrive")}>Yes, redrive ${some}</button><button onClick=${() => setAsked("")}>No</button>
      </div></div>`}
    ${asked === "drop" && html`<div class="note wrong" role="group" aria-label="Drop"><p>They are dropped for good.</p>
      <div class="actions"><button class="danger" onClick=${() => start("drop")}>Yes, drop ${some}</button><button onClick=${() => setAsked("")}>No</button></div></div>`}
    ${run && html`<${Report} run=${run} onStop=${() => stop.current.abort()} onClose=${() => setRun(null)} />`}
  </div>`;
}

/** Answers to one page of orders after the other, not faster than the rate. Chosen ones are ordered one by one. */
async function* pages(kind, { filter, chosen, last, signal, clears, to, rate }) {
  const path = kind === "drop" ? "dead-letters/drop" : "dead-letters/redrive";
  const extra = { is_dry: kind === "count", ...(kind === "redrive" ? { clears_ttl: clears, to } : {}) };
  const limit = kind === "redrive" && rate ? Math.max(1, Math.min(PAGE, Math.ceil(rate / 4))) : PAGE;
  const pause = async (number) => {
    if (kind === "redrive" && rate && number) await wait((1000 * number) / rate, signal);
  };
  if (chosen.size) {
    for (const number of [...chosen].sort((one, other) => one - other)) {
      const body = await post(path, { after: number - 1, stop: number, limit: 1, ...extra }, signal);
      yield body;
      await pause(body.count);
    }
    return;
  }
  for (let after = 0, isEnd = false; !isEnd && after < last; ) {
    const body = await post(path, { wanted: filter, after, stop: last, limit, ...extra }, signal);
    yield body;
    after = body.next;
    isEnd = body.is_end;
    if (!isEnd) await pause(body.count);
  }
}

const wait = (ms, signal) =>
  new Promise((done, fail) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), fail(signal.reason)), { once: true });
  });

/** The dead letters as lines of JSON, in a file. */
async function save(filter, chosen, signal, tell) {
  const lines = [];
  for (let before = 0, isEnd = false; !isEnd && lines.length < EXPORT_MAX; ) {
    const page = await get("dead-letters", { ...filter, before, limit: PAGE }, signal);
    for (const row of page.letters) if (!chosen.size || chosen.has(row.number)) lines.push(JSON.stringify(row));
    before = page.next;
    isEnd = page.is_end;
    tell({ count: lines.length });
  }
  const place = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/x-ndjson" }));
  Object.assign(document.createElement("a"), { href: place, download: "dead-letters.jsonl" }).click();
  URL.revokeObjectURL(place);
}

function Report({ run, onStop, onClose }) {
  const topics = Object.entries(run.topics).sort((one, other) => other[1] - one[1]);
  const isGood = run.isOver && !run.problem;
  return html`<div class=${`note ${run.problem ? "wrong" : isGood ? "good" : ""}`} role="status">
    <p><b>${count(run.count)} ${DONE[run.kind]}</b>${run.total ? ` of ${count(run.total)}` : ""}${!run.isOver ? " so far…" : run.isStopped ? ", then stopped." : run.problem ? "." : ` in ${duration(run.took)}.`}</p>
    ${run.problem && html`<p>It ended early: ${run.problem.message}. What is not in these numbers still waits.</p>`}
    ${!run.isOver && html`<progress aria-label="Progress" max=${run.total ?? undefined} value=${run.total ? run.count : undefined}></progress>`}
    ${run.without > 0 && html`<p>${plural(run.without, "dead letter")} could not be redriven: they have no payload any more.</p>`}
    ${run.gone > 0 && html`<p>${plural(run.gone, "dead letter")} could not be redriven to a subscriber that does not exist, or does not take the topic, any more.</p>`}
    ${run.isOver && topics.length > 0 && html`<dl>${topics.slice(0, 20).map(([topic, number]) => html`<dt>${topic}</dt><dd>${count(number)}</dd>`)}</dl>`}
    ${run.isOver && run.waiting !== undefined && html`<p class="quiet">${count(run.waiting)} still wait.</p>`}
    <div class="actions">${run.isOver ? html`<button onClick=${onClose}>Close</button>` : html`<button onClick=${onStop}>Stop</button>`}</div>
  </div>`;
}
