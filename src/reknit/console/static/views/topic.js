// One topic: who publishes, who subscribes, its queues, how long it is kept, and its events as they come.

import { html } from "../lib/html.js";
import { count, duration, plural, short, shortSource } from "../lib/format.js";
import { useLive, useOnce } from "../lib/live.js";
import { Bar, Empty, Head, Lag, Number_, Rate, Spark, Table, Trouble } from "../lib/parts.js";
import { link } from "../lib/route.js";
import { PublishButton } from "./publish.js";
import { Tail } from "./tail.js";

const SOURCES = 10;

/** Whether a topic matches a pattern: `*` is one segment, `**` any number of them. */
export function matches(pattern, topic) {
  const [first, ...rest] = pattern.split("/");
  const [segment, ...others] = topic.split("/");
  if (pattern === "") return topic === "";
  if (first === "**") return !rest.length || topic.split("/").some((_, at, all) => matches(rest.join("/"), all.slice(at).join("/"))) || matches(rest.join("/"), "");
  if (topic === "" || (first !== "*" && first !== segment)) return false;
  return rest.length ? matches(rest.join("/"), others.join("/")) : !others.length;
}

export function Topic({ params }) {
  const name = params.name ?? "";
  const { data, problem } = useLive({ ledger: ["ledger", { topic: name, limit: 100 }], topics: ["topics", { topic: name, limit: 1 }], sources: ["sources", { topic: name, limit: SOURCES }], queues: ["queues"] });
  const config = useOnce("config").data;
  if (!name) return html`<${Empty} title="No topic is named" />`;
  const [row] = data.topics?.rows ?? [];
  const queues = (data.queues ?? []).filter((one) => matches(one.pattern, name));
  return html`<${Head} title=${name} text=${row ? `${count(row.events)} events from ${plural(row.sources, "source")}, ${short(row.rate)} a second${row.gaps ? `, ${plural(row.gaps, "gap")}` : ""}. ${kept(config, name, data.sources?.rows)}` : ""}>
      <a href=${link("event", { topic: name })}>Search</a><${PublishButton} topic=${name} /><//>
    <${Trouble} problem=${problem} />
    <h2>Live</h2>
    <${Tail} topic=${name} key=${name} />
    <h2>Subscribers</h2>
    ${data.ledger && html`<${Table} caption="Subscribers of this topic" rows=${data.ledger.rows} empty="No durable subscriber is owed its events." columns=${[
      ["subscriber", (one) => html`<a href=${link("ledger", { subscriber: one.subscriber })}>${one.subscriber}</a>`, "name"],
      ["outcomes", (one) => html`<${Bar} row=${one} />`],
      ["owed", (one) => count(one.published), "number"],
      ["accepted", (one) => count(one.accepted), "number"],
      ["dead", (one) => html`<a href=${link("letters", { topic: name, subscriber: one.subscriber })}><${Number_} value=${one.dead_lettered} kind="dead" /></a>`, "number"],
      ["lost", (one) => html`<a href=${link("losses", { topic: name })}><${Number_} value=${one.lost} kind="lost" /></a>`, "number"],
      ["in flight", (one) => count(one.in_flight), "number"],
      ["lag", (one) => html`<${Lag} row=${one} />`, "number"],
      ["per second", (one) => html`<${Rate} value=${one.rate} />`, "number"],
      ["last 5 min", (one) => html`<${Spark} values=${one.trend} label="events per second over the last minutes" />`],
    ]} />`}
    ${queues.length > 0 && html`<h2>Queues</h2><${Queues} rows=${queues} />`}
    <h2>Publishers <a class="small" href=${link("sources", { topic: name })}>as strips</a></h2>
    ${data.sources && html`<${Table} caption="Publishers" rows=${data.sources.rows} empty="No source has published here." columns=${[
      ["source", (one) => html`<a href=${link("sources", { topic: name, source: one.source })}><code>${shortSource(one.source)}</code></a>`],
      ["owner", (one) => one.owner || html`<span class="quiet">nobody</span>`],
      ["events", (one) => count(one.published), "number"],
      ["last", (one) => html`<a href=${link("event", { topic: name, id: `${one.source}:${one.last}` })}>${count(one.last)}</a>`, "number"],
      ["held from", (one) => count(one.first_held), "number"],
      ["missing", (one) => html`<${Number_} value=${one.gaps} kind="dead" />`, "number"],
      ["lost", (one) => html`<${Number_} value=${one.lost} kind="lost" />`, "number"],
    ]} />
    ${data.sources.count > SOURCES && html`<p class="small quiet">${count(data.sources.count)} in all.</p>`}`}`;
}

/** Work queues: depth, oldest event, workers. */
export const Queues = ({ rows }) => html`<${Table} caption="Queues" rows=${rows} empty="No work queue." columns=${[
  ["queue", (row) => row.queue, "name"],
  ["topics", (row) => row.pattern],
  ["kind", (row) => row.kind],
  ["depth", (row) => count(row.depth), "number"],
  ["oldest", (row) => (row.oldest_s === null ? "–" : duration(row.oldest_s)), "number"],
  ["workers", (row) => html`<span title=${row.members.map((one) => one.name).join("\n")}>${count(row.members.length)}</span>`, "number"],
  ["accepted", (row) => count(row.accepted), "number"],
  ["dead", (row) => html`<${Number_} value=${row.dead_lettered} kind="dead" />`, "number"],
  ["being retried", (row) => count(row.tried), "number"],
]} />`;

/** How long events are kept, as far as this person may know. */
function kept(config, name, sources) {
  const first = sources?.length ? Math.max(...sources.map((one) => one.first_held)) : 1;
  const told = (config ?? []).filter((row) => row.name.startsWith("retention.") && !["0", "0.0", "true", "false"].includes(row.value));
  if (!config) return first > 1 ? "Old events were removed." : "";
  return told.length ? `Retention: ${told.map((row) => `${row.name.split(".")[1]} ${row.value}`).join(", ")}.` : "Everything is kept.";
}
