// Search for events by what is in them. The node looks a part at a time: the page shows how far it came, and can stop.

import { get } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { count, fromLocal, oneLine, shortId } from "../lib/format.js";
import { At, Empty, Filters, Head, Table, Trouble } from "../lib/parts.js";
import { go, link } from "../lib/route.js";

const FOUND_MAX = 200;
const FIELDS = [["topic", "Topics", "**"], ["text", "Text in the payload", ""], ["key", "Key", ""], ["header", "Header", "name=value"], ["message", "Message id", ""], ["since", "Since", "datetime-local"], ["until", "Until", "datetime-local"]];

export function Search({ params }) {
  const { message, since, until, text, key, header } = params;
  const isAsked = Boolean(text || key || header || message || since || until);
  return html`<${Head} title="Events" text="Find one event by its id, or by what is in it. The newest come first." />
    <${ById} params=${params} />
    <${Filters} view="event" params=${params} fields=${FIELDS} button="Search" />
    ${isAsked
      ? html`<${Results} key=${JSON.stringify(params)} params=${{ topic: params.topic || "**", text, key, header, id: message, since_us: fromLocal(since), until_us: fromLocal(until) }} />`
      : html`<${Empty} title="Say what you look for" text="For instance a text in the payload, the value of a header such as a trace id, or a time. reknit prints an event's id as SOURCE:SEQ." />`}`;
}

function ById({ params }) {
  const submit = (event) => {
    event.preventDefault();
    go("event", Object.fromEntries(new FormData(event.target)));
  };
  return html`<form class="filters" onSubmit=${submit}>
    <label>Event (SOURCE:SEQ)<input name="id" required pattern="[0-9a-f]{32}:[0-9]+" title="32 hexadecimal digits, a colon and a number" size="38" spellcheck="false" autocomplete="off" /></label>
    <label>Its topic<input name="topic" required value=${params.topic?.includes("*") ? "" : (params.topic ?? "")} spellcheck="false" autocomplete="off" /></label>
    <button>Show</button></form>`;
}

function Results({ params }) {
  const stop = useRef(new AbortController());
  const [state, setState] = useState({ rows: [], seen: 0, total: 0, isBusy: true, isEnd: false, isStopped: false, place: "", problem: null });
  async function run(from) {
    const { signal } = (stop.current = new AbortController());
    let place = from.place, rows = from.rows, seen = from.seen, total = from.total;
    const wanted = rows.length + FOUND_MAX;
    try {
      do {
        const part = await get("search", { ...params, place, limit: Math.min(wanted - rows.length, 100) }, signal);
        rows = [...rows, ...part.found].sort((one, other) => other.time_us - one.time_us);
        seen += part.seen;
        total = part.total;
        place = part.next ?? "";
        setState({ rows, seen, total, place, isBusy: Boolean(place) && rows.length < wanted, isEnd: !place, isStopped: false, problem: null });
      } while (place && rows.length < wanted);
    } catch (problem) {
      setState((old) => ({ ...old, isBusy: false, isStopped: signal.aborted, problem: signal.aborted ? null : problem }));
    }
  }
  useEffect(() => {
    run(state);
    return () => stop.current.abort();
  }, []);
  const { rows, seen, total, isBusy, isEnd, isStopped } = state;
  return html`<${Trouble} problem=${state.problem} />
    <div class="card pad" role="status">
      <p>${count(rows.length)} found among ${count(seen)} of ${count(total)} events${isEnd ? "." : isStopped ? "; stopped." : isBusy ? "…" : "."}</p>
      <progress max=${Math.max(total, 1)} value=${isEnd ? Math.max(total, 1) : Math.min(seen, total)} aria-label="How far the search came"></progress>
      <div class="pages">${isBusy
        ? html`<button onClick=${() => stop.current.abort()}>Stop</button>`
        : !isEnd && html`<button onClick=${() => { setState((old) => ({ ...old, isBusy: true })); run(state); }}>Go on</button>`}</div>
    </div><br />
    ${(rows.length > 0 || isEnd) && html`<${Table} caption="Found events" rows=${rows} empty="No event that is held here fits." keyOf=${(row) => row.id} columns=${[
      ["published", (row) => html`<${At} us=${row.time_us} millis />`],
      ["event", (row) => html`<a href=${link("event", { topic: row.topic, id: row.id })}><code>${shortId(row.id)}</code></a>`],
      ["topic", (row) => row.topic],
      ["key", (row) => row.key],
      ["payload", (row) => html`<span class="mono">${oneLine(row.payload)}</span>`, "wide"],
    ]} />`}`;
}
