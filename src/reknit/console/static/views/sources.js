// The sources of a topic as strips of their seqs, from all of them to a single one.

import { html, useRef } from "../lib/html.js";
import { count, plural } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Empty, Filters, Head, Pages, Trouble } from "../lib/parts.js";
import { go, link } from "../lib/route.js";

const LIMIT = 20;
const KINDS = { held: "held here", removed: "removed by retention", gap: "missing", lost: "lost to a subscriber" };
/** Fewer events than this are shown one by one. */
const SINGLE = 240;

export function Sources({ params }) {
  const { topic } = params;
  return html`<${Head} title="Sources" text="Each source numbers its events. A strip shows what became of the numbers; the worst in a part is its colour. Click into a strip to zoom in, and on a single event to see it." />
    <${Filters} view="sources" params=${params} fields=${[["topic", "Topic", "plant/line1/temp"], ["source", "Source", "all"], ["start", "From event", "1"], ["stop", "To before", "the end"]]} />
    ${topic && !topic.includes("*") ? html`<${Strips} params=${params} />` : html`<${Topics} pattern=${topic} />`}`;
}

/** Which topic? */
function Topics({ pattern }) {
  const { data, problem } = useLive({ topics: ["topics", { topic: pattern, order: "gaps", limit: 30 }] });
  const rows = data.topics?.rows ?? [];
  return html`<${Trouble} problem=${problem} />
    ${data.topics && (rows.length
      ? html`<h2>Choose a topic <span class="quiet">those with gaps first</span></h2><div class="card pad">${rows.map((row) => html`<p><a href=${link("sources", { topic: row.topic })}>${row.topic}</a> <span class="quiet small">${plural(row.sources, "source")}${row.gaps ? `, ${plural(row.gaps, "gap")}` : ""}</span></p>`)}</div>`
      : html`<${Empty} title="No topic yet" command="reknit pub plant/line1/temp 21.5" />`)}`;
}

function Strips({ params }) {
  const { data, problem } = useLive({ sources: ["sources", { ...params, limit: LIMIT }] });
  if (!data.sources) return html`<${Trouble} problem=${problem} />`;
  const { rows, count: total } = data.sources;
  const isZoomed = Boolean(params.start || params.stop);
  return html`<${Trouble} problem=${problem} />
    <div class="key">${Object.entries(KINDS).map(([kind, text]) => html`<span><i class=${kind}></i>${text}</span>`)}
      ${(isZoomed || params.source) && html`<a href=${link("sources", { topic: params.topic, source: isZoomed ? params.source : "" })}>${isZoomed ? "Show everything" : "All sources"}</a>`}</div>
    ${rows.length ? html`<div class="card">${rows.map((row) => html`<${Source} row=${row} params=${params} key=${row.source} />`)}</div>` : html`<${Empty} title="No source has published on this topic" />`}
    <${Pages} view="sources" params=${params} total=${total} limit=${LIMIT} />`;
}

function Source({ row, params }) {
  const place = useRef();
  const width = Math.max(1, row.stop - row.start);
  const zoom = (low, high) => go("sources", { topic: params.topic, source: row.source, start: Math.max(1, low), stop: high });
  const show = (seq) => go("event", { topic: params.topic, id: `${row.source}:${seq}` });
  const click = (event) => {
    const { left, width: wide } = place.current.getBoundingClientRect();
    const seq = Math.min(row.stop - 1, row.start + Math.floor((width * (event.clientX - left)) / wide));
    if (width <= SINGLE) show(seq);
    else zoom(seq - Math.floor(width / 16), seq + Math.ceil(width / 16));
  };
  const key = (event) => {
    const step = Math.ceil(width / 4);
    const moves = {
      ArrowRight: () => zoom(row.start + step, row.stop + step),
      ArrowLeft: () => zoom(row.start - step, Math.max(row.stop - step, width)),
      "+": () => zoom(row.start + step, row.stop - step),
      Enter: () => (width <= SINGLE ? show(row.start) : zoom(row.start + step, row.stop - step)),
      "-": () => zoom(row.start - width, row.stop + width),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  };
  const bad = row.cells.filter(([kind]) => kind === "gap" || kind === "lost");
  return html`<div class="source">
    <div class="row"><a href=${link("sources", { topic: params.topic, source: row.source })}><code>${row.source}</code></a>
      ${row.owner && html`<span class="quiet small">${row.owner}</span>`}
      <span class="small">${plural(row.published, "event")}</span>
      ${row.first_held > 1 && html`<span class="small quiet">held from ${count(row.first_held)}</span>`}
      ${row.gaps > 0 && html`<span class="small dead">${count(row.gaps)} missing</span>`}
      ${row.lost > 0 && html`<span class="small lost">${count(row.lost)} lost to ${row.losers.join(", ")}</span>`}</div>
    <svg ref=${place} class="strip" viewBox="0 0 ${width} 10" preserveAspectRatio="none" role="button" tabindex="0" onClick=${click} onKeyDown=${key}
      aria-label=${`Events ${count(row.start)} to ${count(row.stop - 1)}: ${row.cells.map(([kind, low, high]) => `${count(low)} to ${count(high - 1)} ${KINDS[kind]}`).slice(0, 8).join("; ")}. Enter or plus zooms in, minus zooms out, arrows move.`}>
      ${row.cells.map(([kind, low, high]) => html`<rect class=${kind} x=${low - row.start} y="0" width=${high - low} height="10"><title>${count(low)} to ${count(high - 1)}: ${KINDS[kind]}</title></rect>`)}
    </svg>
    <div class="row small quiet"><span>${count(row.start)}</span><span>to ${count(row.stop - 1)}</span>
      ${bad.slice(0, 6).map(([kind, low, high]) => html`<a href=${link("sources", { topic: params.topic, source: row.source, start: Math.max(1, low - 40), stop: high + 40 })}>${kind === "gap" ? "missing" : "lost"} ${count(low)}${high - low > 1 ? `–${count(high - 1)}` : ""}</a>`)}</div>
  </div>`;
}
