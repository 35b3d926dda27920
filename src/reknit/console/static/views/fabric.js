// The fabric as this node knows it: nodes, links, bridges, gateways, pipelines.

import { html } from "../vendor/htm-preact.js";
import { count, duration, size } from "../lib/format.js";
import { Table, Trouble } from "../lib/parts.js";
import { usePoll } from "../lib/poll.js";

const WIDTH = 900, HEIGHT = 380;

export function Fabric() {
  const { data, problem, at } = usePoll("links");
  const summary = usePoll("summary").data;
  if (!data || !summary) return html`<h1>Fabric</h1><${Trouble} problem=${problem} at=${at} />`;
  return html`<h1>Fabric</h1>
    <${Trouble} problem=${problem} at=${at} />
    <div class="card"><${Picture} here=${summary.node} links=${data.links} /></div>
    <h2>Nodes</h2>
    <${Table} caption="Nodes" rows=${data.links} empty="This node has no links: reknit link add URL makes one."
      columns=${[
        ["node", (row) => row.node || row.url],
        ["state", (row) => row.state],
        ["cost", (row) => row.cost ?? "–", "number"],
        ["by way of", (row) => row.via || "–"],
        ["subscriptions", (row) => count(row.subscriptions), "number"],
        ["sent", (row) => count(row.sent), "number"],
        ["received", (row) => count(row.received), "number"],
        ["unsettled", (row) => count(row.unsettled), "number"],
        ["", (row) => row.problem, "wide"],
      ]} />
    <h2>Gateways</h2>
    <${Table} caption="Gateways" empty="No gateway is open." rows=${["http", "amqp"].filter((one) => summary[one]).map((one) => ({ name: one, ...summary[one] }))}
      columns=${[
        ["gateway", (row) => row.name],
        ["address", (row) => row.url],
        ["connections", (row) => count(row.connections), "number"],
        ["tunnels", (row) => (row.tunnels_live === undefined ? "–" : `${count(row.tunnels_live)} live, ${count(row.tunnels_behind)} behind, ${count(row.tunnels_blocked)} blocked`)],
      ]} />
    <h2>Pipelines</h2>
    <${Table} caption="Pipelines" rows=${summary.pipelines} empty="No pipeline has reported to this node."
      columns=${[
        ["lake", (row) => row.lake],
        ["stage", (row) => row.stage],
        ["behind", (row) => size(row.lag_bytes), "number"],
        ["settled", (row) => count(row.settled), "number"],
        ["lost", (row) => (row.lost ? html`<span class="lost">${count(row.lost)}</span>` : "0"), "number"],
        ["dead letters", (row) => count(row.dead_letters), "number"],
        ["last report", (row) => `${duration(row.age_s)} ago`],
      ]} />`;
}

/** This node in the middle, its neighbours around it, and the nodes behind them further out. */
function Picture({ here, links }) {
  const places = new Map([[here, [WIDTH / 2, HEIGHT / 2]]]);
  const near = links.filter((row) => row.state === "linked" || row.state === "waiting");
  const far = links.filter((row) => !near.includes(row));
  ring(near, 110, places);
  ring(far, 165, places);
  return html`<svg class="fabric" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${`${here} and ${links.length} other nodes`}>
    ${links.map((row) => {
      const [x, y] = places.get(row.node || row.url);
      const [fromX, fromY] = places.get(row.via && row.via !== row.node ? row.via : here) ?? places.get(here);
      return row.state !== "away" && html`<line x1=${fromX} y1=${fromY} x2=${x} y2=${y} stroke-dasharray=${row.state === "waiting" ? "4" : ""} />`;
    })}
    ${[{ node: here, state: "linked" }, ...links].map((row) => {
      const name = row.node || row.url;
      const [x, y] = places.get(name);
      return html`<g><title>${name}: ${row.state}</title><circle class=${row.state} cx=${x} cy=${y} r=${name === here ? 13 : 9} />
        <text x=${x} y=${y + 28} text-anchor="middle">${name}</text></g>`;
    })}
  </svg>`;
}

function ring(rows, radius, places) {
  rows.forEach((row, at) => {
    const angle = (2 * Math.PI * at) / rows.length - Math.PI / 2;
    places.set(row.node || row.url, [WIDTH / 2 + 2.1 * radius * Math.cos(angle), HEIGHT / 2 + radius * Math.sin(angle)]);
  });
}
