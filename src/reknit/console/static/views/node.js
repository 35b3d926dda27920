// This node: its journal, memory, connections and settings.

import { html } from "../vendor/htm-preact.js";
import { count, duration, size } from "../lib/format.js";
import { Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";

export function Node() {
  const { data, problem, at } = usePoll("summary");
  const config = usePoll("config", {}, 0);
  if (!data) return html`<h1>Node</h1><${Trouble} problem=${problem} at=${at} />`;
  const { journal, intake } = data;
  return html`<h1>${data.node}</h1>
    <${Trouble} problem=${problem} at=${at} />
    ${journal.problem && html`<p class="note wrong" role="alert">${journal.problem}: publishers wait until the node is restarted.</p>`}
    ${!journal.problem && intake.is_full && html`<p class="note wrong" role="alert">Publishers wait: ${intake.why}</p>`}
    <dl>
      <dt>version</dt><dd>${data.version}</dd>
      <dt>listens on</dt><dd>${data.listen.join(", ")}</dd>
      <dt>up</dt><dd>${duration(data.uptime_s)}, process ${data.pid}, ${data.cpu_s.toFixed(1)} s of CPU, ${size(data.rss_bytes)} of memory</dd>
      <dt>journal</dt><dd>${count(journal.events)} events, ${size(journal.bytes)} in ${data.data_dir ?? "memory"}</dd>
      <dt>intake</dt><dd>${count(data.events_s)} events/s, ${count(intake.duplicates)} duplicates dropped</dd>
      <dt>paused</dt><dd>${data.paused.join(", ") || "nothing"}</dd>
    </dl>
    <h2>Connections</h2>
    <${Table} caption="Connections" rows=${data.peers.slice(0, 200)} empty="Nobody is connected."
      columns=${[["name", (row) => row.name || "–"], ["address", (row) => row.address]]} />
    ${data.peers.length > 200 && html`<p class="quiet">and ${count(data.peers.length - 200)} more</p>`}
    <h2>Settings</h2>
    <${Trouble} problem=${config.problem} />
    ${config.data && html`<${Table} caption="Settings" rows=${config.data} empty=""
      columns=${[["setting", (row) => html`<code>${row.name}</code>`], ["value", (row) => row.value || html`<span class="quiet">empty</span>`, "wide"]]} />`}`;
}
