// Pipelines that read this node's journal: stages, lag, rate, losses, the last audit, and tables with their sizes.

import { html } from "../lib/html.js";
import { count, duration, short, size } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { At, Empty, Head, Number_, Table, Trouble, Waiting } from "../lib/parts.js";

const SILENT_S = 30;
const OVER = ["done", "stopped"];

export function Pipelines() {
  const { data, problem } = useLive({ pipelines: ["pipelines"] });
  if (!data.pipelines) return html`<${Waiting} title="Pipelines" problem=${problem} />`;
  return html`<${Head} title="Pipelines" text="Spark reads the journal into tables, settles and audits them. Each pipeline reports to the nodes that it reads." />
    <${Trouble} problem=${problem} />
    ${data.pipelines.length
      ? data.pipelines.map((row) => html`<${Pipeline} row=${row} key=${row.id} />`)
      : html`<${Empty} title="No pipeline has reported to this node" text="A pipeline captures every event and outcome into tables, and balances the ledger over them." command="reknit pipeline run --nodes tcp://127.0.0.1:7447 --lake lake" />`}`;
}

function Pipeline({ row }) {
  const isOver = OVER.includes(row.stage);
  const isSilent = row.age_s > SILENT_S && !isOver;
  const { audit } = row;
  return html`<section><h2>${row.lake} <span class=${`chip ${isSilent ? "lost" : isOver ? "" : "good"}`}>${isSilent ? `silent for ${duration(row.age_s)}` : row.stage}</span><span class="quiet">last report ${duration(row.age_s)} ago</span></h2>
    ${row.away.length > 0 && html`<p class="note wrong">It can't reach ${row.away.join("; ")}</p>`}
    <${Table} caption=${`Stages of ${row.lake}`} rows=${stages(row)} empty="" columns=${[
      ["stage", (one) => one.name, "name"],
      ["done", (one) => one.done, "number"],
      ["rate", (one) => one.rate, "number"],
      ["state", (one) => one.state, "wide"],
    ]} />
    <div class="tiles">
      <div class="tile"><b>${size(row.lag_bytes)}</b><span>behind the journals</span></div>
      <div class="tile"><b class=${row.lost ? "lost" : ""}>${count(row.lost)}</b><span>lost</span></div>
      <div class="tile"><b class=${row.late ? "dead" : ""}>${count(row.late)}</b><span>came too late</span></div>
      <div class="tile"><b class=${!audit ? "quiet" : audit.is_balanced ? "good" : "lost"}>${!audit ? "none" : audit.is_balanced ? "balanced" : `${count(audit.problems)} problems`}</b>
        <span>last audit${audit && html`, <${At} us=${audit.at_us} />, ${count(audit.rows)} rows`}</span></div>
    </div>
    ${audit?.page && html`<p class="note small">The page of the last audit: <code>${audit.page}</code></p>`}
    ${row.tables.length > 0 && html`<${Table} caption=${`Tables of ${row.lake}`} rows=${row.tables} empty="" columns=${[
      ["table", (one) => one.name, "name"],
      ["files", (one) => count(one.files), "number"],
      ["size", (one) => size(one.bytes), "number"],
    ]} />`}</section>`;
}

const stages = (row) => [
  { name: "capture", done: `${count(row.batches)} batches`, rate: `${short(row.batches_s)}/s`, state: `${size(row.lag_bytes)} behind the journals` },
  { name: "settle", done: `${count(row.settled)} events`, rate: `${short(row.events_s)}/s`, state: `${count(row.gaps)} gaps that may still be filled, ${count(row.held)} events behind them` },
  { name: "dead letters", done: html`<${Number_} value=${row.dead_letters} kind="dead" />`, rate: "", state: "" },
];
