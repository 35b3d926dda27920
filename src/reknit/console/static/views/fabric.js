// The fabric as this node knows it: nodes, links, gateways, bridges, groups, pipelines, as a picture and as tables.

import { html, useRef, useState } from "../lib/html.js";
import { count, duration, plural, short, size } from "../lib/format.js";
import { useLive, useOnce } from "../lib/live.js";
import { Picture } from "../lib/picture.js";
import { Head, Table, Trouble, Waiting } from "../lib/parts.js";
import { link } from "../lib/route.js";

const DOORS = { http: "HTTP", amqp: "AMQP" };
const SILENT_S = 30;

export function Fabric() {
  const { data, problem } = useLive({ links: ["links"], summary: ["summary"] });
  const groups = useOnce("topics", { topic: "group/**", limit: 50 }).data;
  const rates = useRates(data.links?.links);
  const [chosen, setChosen] = useState("");
  const { summary } = data;
  if (!summary) return html`<${Waiting} title="Fabric" problem=${problem} />`;
  const { links = [], routes = [] } = data.links ?? {};
  const things = thingsOf(summary, links, routes, groups?.rows ?? [], rates);
  const stale = links.filter((row) => row.state === "away" || row.state === "waiting");
  return html`<${Head} title="Fabric" text="This node, the nodes that it can reach, and everything that is attached to it." />
    <${Trouble} problem=${problem} />
    ${stale.length > 0 && html`<p class="note wrong">${plural(stale.length, "node")} can't be reached: ${stale.map((row) => row.node || row.url).join(", ")}. Events for ${stale.length === 1 ? "it" : "them"} wait here.</p>`}
    <div class="card"><${Picture} things=${things.nodes} ties=${things.ties} chosen=${chosen} onChoose=${setChosen} /></div>
    <${Chosen} thing=${things.nodes.find((one) => one.id === chosen)} />
    <h2>Nodes</h2>
    <${Table} caption="Nodes" rows=${links}
      empty=${{ title: "This node has no links", text: "Linked nodes carry events to each other, and find another way when a link breaks.", command: "reknit link add tcp://OTHER:7447" }}
      columns=${[
        ["node", (row) => row.node || row.url, "name"],
        ["state", (row) => html`<span class=${`chip ${row.state === "linked" || row.state === "reached" ? "good" : "lost"}`}>${row.state}</span>`],
        ["cost", (row) => row.cost ?? "–", "number"],
        ["way", (row) => (row.via && row.via !== row.node ? `by way of ${row.via}` : row.state === "linked" ? "direct" : "–")],
        ["events per second", (row) => short(rates[row.node] ?? 0), "number"],
        ["sent", (row) => count(row.sent), "number"],
        ["received", (row) => count(row.received), "number"],
        ["unsettled", (row) => count(row.unsettled), "number"],
        ["subscriptions", (row) => count(row.subscriptions), "number"],
        ["problem", (row) => row.problem, "wide"],
      ]} />
    <h2>Gateways</h2>
    <${Table} caption="Gateways" empty="No gateway is open." rows=${Object.keys(DOORS).filter((one) => summary[one]).map((one) => ({ name: one, ...summary[one] }))}
      columns=${[
        ["gateway", (row) => html`<a href=${link("connections", { door: row.name })}>${DOORS[row.name]}</a>`, "name"],
        ["address", (row) => row.url],
        ["connections", (row) => count(row.connections), "number"],
        ["tunnels and links", (row) => row.tunnels_live === undefined ? `${count(row.links_in)} in, ${count(row.links_out)} out` : `${count(row.tunnels_live)} live, ${count(row.tunnels_behind)} behind, ${count(row.tunnels_blocked)} blocked`],
      ]} />
    ${routes.length > 0 && html`<h2>Bridges</h2>
      <${Table} caption="Bridges" rows=${routes} empty="" columns=${[
        ["from", (row) => row.in ?? row.source ?? "", "wide"],
        ["to", (row) => row.out ?? row.sink ?? "", "wide"],
        ["state", (row) => row.state ?? (row.problem ? "broken" : "open")],
        ["problem", (row) => row.problem ?? "", "wide"],
      ]} />`}`;
}

/** Events a second over each link, from the difference of two figures. */
function useRates(links) {
  const last = useRef({ at: 0, sent: {}, rates: {} });
  if (links && links !== last.current.links) {
    const now = Date.now();
    const passed = (now - last.current.at) / 1000;
    const rates = {};
    for (const row of links) {
      const total = row.sent + row.received;
      const before = last.current.sent[row.node];
      if (before !== undefined && passed > 0.5) rates[row.node] = Math.max(0, (total - before) / passed);
    }
    last.current = { at: now, links, rates, sent: Object.fromEntries(links.map((row) => [row.node, row.sent + row.received])) };
  }
  return last.current.rates;
}

/** What is in the picture: {id, kind, name, note, state, view} and what ties it together. */
function thingsOf(summary, links, routes, groupTopics, rates) {
  const here = `node:${summary.node}`;
  const nodes = [{ id: here, kind: "node", state: "here", name: summary.node, note: `${short(summary.events_s)}/s`, href: link("node") }];
  const ties = [];
  for (const row of links) {
    const name = row.node || row.url;
    const id = `node:${name}`;
    nodes.push({ id, kind: "node", state: row.state, name, note: row.problem || row.state, row });
    const from = row.via && row.via !== row.node ? `node:${row.via}` : here;
    const rate = rates[row.node] ?? 0;
    if (row.state === "linked") ties.push({ source: here, target: id, label: `${row.cost}${rate ? ` · ${short(rate)}/s` : ""}`, state: rate ? "busy" : "" });
    else ties.push({ source: from, target: id, label: row.cost ?? "", state: row.state === "reached" ? "" : "broken" });
  }
  const known = new Set(nodes.map((one) => one.id));
  for (const tie of ties) if (!known.has(tie.source)) tie.source = here;
  const attach = (id, kind, name, note, href, state = "") => {
    nodes.push({ id, kind, name, note, href, state });
    ties.push({ source: here, target: id, label: "", state });
  };
  for (const door of Object.keys(DOORS)) {
    if (summary[door]) attach(`door:${door}`, "gateway", DOORS[door], plural(summary[door].connections, "client"), link("connections", { door }));
  }
  for (const row of summary.pipelines ?? []) {
    const isSilent = row.age_s > SILENT_S && row.stage !== "done" && row.stage !== "stopped";
    attach(`lake:${row.id}`, "pipeline", row.lake.split("/").pop(), isSilent ? `silent for ${duration(row.age_s)}` : `${row.stage}, ${size(row.lag_bytes)} behind`, link("pipelines"), isSilent ? "broken" : "");
  }
  for (const [at, row] of routes.entries()) attach(`route:${at}`, "bridge", String(row.out ?? row.to ?? `bridge ${at + 1}`).slice(0, 40), "bridge", undefined, row.problem ? "broken" : "");
  for (const name of new Set(groupTopics.map((row) => row.topic.split("/")[1]))) attach(`group:${name}`, "group", name, "group", link("topics", { topic: `group/${name}/**` }));
  const away = (summary.peers ?? []).length;
  if (away) attach("sessions", "clients", plural(away, "session"), "clients", link("connections", { door: "node" }));
  return { nodes, ties };
}

/** What was clicked. */
function Chosen({ thing }) {
  if (!thing) return null;
  const { row } = thing;
  return html`<div class="note" role="status"><div><b>${thing.name}</b> <span class="quiet">${thing.kind}${row ? `, ${row.state}` : ""}</span></div>
    ${row
      ? html`<dl>
          <dt>address</dt><dd>${row.url || "not known"}</dd>
          <dt>way</dt><dd>${row.via && row.via !== row.node ? `by way of ${row.via}, ` : "direct, "}cost ${row.cost ?? "unknown"}</dd>
          <dt>events</dt><dd>${count(row.sent)} sent, ${count(row.received)} received, ${count(row.unsettled)} unsettled</dd>
          <dt>subscriptions</dt><dd>${count(row.subscriptions)}</dd>
          ${row.problem && html`<dt>problem</dt><dd class="lost">${row.problem}</dd>`}
        </dl>`
      : html`<p>${thing.note} ${thing.href && html`<a href=${thing.href}>Open</a>`}</p>`}
  </div>`;
}
