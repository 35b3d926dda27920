// This node: its journal, memory, settings and where they come from, log, audit trail.

import { html } from "../lib/html.js";
import { count, duration, plural, size } from "../lib/format.js";
import { useLive, useOnce } from "../lib/live.js";
import { At, Filters, Head, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";

const TABS = { "": "Overview", settings: "Settings", log: "Log", audit: "Audit trail" };

export function Node({ params }) {
  const { data, problem } = useLive({ summary: ["summary"] });
  const { summary } = data;
  if (!summary) return html`<${Waiting} title="Node" problem=${problem} />`;
  const tab = params.tab ?? "";
  return html`<${Head} title=${summary.node} text=${`reknit ${summary.version}, process ${summary.pid}, up for ${duration(summary.uptime_s)}`} />
    <${Trouble} problem=${problem} />
    <nav class="tabs" aria-label="Parts of this view">${Object.entries(TABS).map(([name, text]) => html`<a href=${link("node", { tab: name })} aria-current=${tab === name ? "page" : null}>${text}</a>`)}</nav><br />
    ${{ settings: () => html`<${Settings} params=${params} />`, log: () => html`<${Log} />`, audit: () => html`<${Audit} />` }[tab]?.() ?? html`<${Overview} summary=${summary} />`}`;
}

function Overview({ summary }) {
  const { journal, intake } = summary;
  const { commits } = journal;
  return html`
    ${journal.problem && html`<p class="note wrong" role="alert">${journal.problem}: publishers wait until the node is restarted.</p>`}
    ${!journal.problem && intake.is_full && html`<p class="note wrong" role="alert">Publishers wait: ${intake.why}</p>`}
    <div class="tiles">
      <div class="tile"><b>${count(summary.events_s)}</b><span>events a second</span></div>
      <div class="tile"><b>${count(journal.events)}</b><span>events in the journal</span></div>
      <div class="tile"><b>${size(journal.bytes)}</b><span>in ${plural(journal.segments, "segment")}</span></div>
      <div class="tile"><b>${duration(commits.mean_s)}</b><span>a sync takes, ${duration(commits.longest_s)} at most lately</span></div>
      <div class="tile"><b>${size(summary.rss_bytes)}</b><span>memory</span></div>
      <div class="tile"><b>${duration(summary.cpu_s)}</b><span>of CPU since the start</span></div>
    </div>
    <div class="card pad"><dl>
      <dt>listens on</dt><dd>${summary.listen.join(", ")}</dd>
      <dt>journal</dt><dd>${journal.kind === "disk" ? summary.data_dir : "in memory"}, positions ${count(journal.start)} to ${count(journal.end)}, ${count(journal.streams)} sources</dd>
      <dt>not durable yet</dt><dd>${size(Math.max(0, journal.staged_end - journal.end))}; ${count(commits.count)} syncs so far, the last took ${duration(commits.last_s)}</dd>
      <dt>duplicates</dt><dd>${count(intake.duplicates)} were dropped</dd>
      <dt>requests</dt><dd>${count(summary.requests.open)} wait for a response, ${count(summary.requests.answered)} were answered by the node</dd>
      <dt>paused</dt><dd>${summary.paused.join(", ") || "nothing"}</dd>
      <dt>connections</dt><dd><a href=${link("connections")}>${count(summary.peers.length + (summary.http?.connections ?? 0) + (summary.amqp?.connections ?? 0))}</a></dd>
    </dl></div>`;
}

function Settings({ params }) {
  const { data, problem } = useOnce("config");
  const wanted = (params.name ?? "").toLowerCase();
  const rows = (data ?? []).filter((row) => row.name.includes(wanted) && (params.show !== "set" || row.origin !== "default"));
  return html`<${Trouble} problem=${problem} />
    <${Filters} view="node" params=${params} fixed=${{ tab: "settings" }} fields=${[["name", "Setting", "retention"], ["show", "Show", [["", "all"], ["set", "only those that were set"]]]]} />
    ${data && html`<${Table} caption="Settings" rows=${rows} empty="No setting matches." columns=${[
      ["setting", (row) => html`<code>${row.name}</code><div class="small quiet">${row.doc}</div>`, "wide"],
      ["value", (row) => (row.value && row.value !== '""' ? html`<code>${row.value}</code>` : html`<span class="quiet">empty</span>`), "wide"],
      ["from", (row) => (row.origin === "default" ? html`<span class="quiet">default</span>` : html`<span class="chip">${row.origin}</span>`)],
    ]} />`}`;
}

function Log() {
  const { data, problem } = useLive({ log: ["log", { limit: 200 }] });
  return html`<${Trouble} problem=${problem} />
    <p class="quiet">The last lines of this process, as far as its log level lets them through (<code>reknit up --log info</code> shows more).</p><br />
    ${data.log && html`<${Table} caption="Log" rows=${data.log} empty="Nothing was logged." columns=${[
      ["time", (row) => html`<${At} us=${row.at_us} millis />`, "top"],
      ["level", (row) => html`<span class=${`chip ${row.level === "error" || row.level === "critical" ? "lost" : ""}`}>${row.level}</span>`, "top"],
      ["from", (row) => row.logger, "top"],
      ["line", (row) => html`<span class="mono">${row.text}</span>`, "wide top"],
    ]} />`}`;
}

function Audit() {
  const { data, problem } = useLive({ audit: ["audit", { limit: 200 }] });
  return html`<${Trouble} problem=${problem} />
    ${data.audit && html`<${Table} caption="Audit trail" rows=${data.audit}
      empty=${{ title: "The audit trail is empty", text: "A node with rules writes who logged in, what was refused, and who changed what." }} columns=${[
      ["time", (row) => html`<${At} us=${row.time_us} />`],
      ["who", (row) => row.who, "name"],
      ["what", (row) => `${row.action}${row.kind === "refusal" ? " refused" : ""}`],
      ["code", (row) => html`<span class=${`chip ${row.code === "OK" ? "" : "lost"}`}>${row.code}</span>`],
      ["door", (row) => `${row.door} ${row.address}`],
      ["events", (row) => (row.events ? count(row.events) : ""), "number"],
      ["details", (row) => [row.text, ...Object.entries(row.details).map(([name, value]) => `${name} ${value}`), row.count > 1 ? `${count(row.count)} times` : ""].filter(Boolean).join(", "), "wide"],
    ]} />`}`;
}
