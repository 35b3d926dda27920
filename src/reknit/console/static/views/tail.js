// Events as they come. It can't drown the page: what comes too fast is sampled, and the page says how many it left out.

import { stream } from "/reknit.js";
import { token } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { count, oneLine, shortId } from "../lib/format.js";
import { At, Payload, Trouble } from "../lib/parts.js";
import { link } from "../lib/route.js";

const SHOWN_MAX = 100;
/** So many events are shown of each turn; others are counted. */
const TURN_MAX = 10;
const TURN_MS = 500;

export function Tail({ topic }) {
  const waiting = useRef({ sample: [], came: 0 });
  const [seen, setSeen] = useState({ rows: [], came: 0, left: 0 });
  const [[state, why], setState] = useState(["opening", ""]);
  const [isPaused, setPaused] = useState(false);
  const [open, setOpen] = useState("");
  const secret = token.value;
  useEffect(() => {
    const turn = waiting.current;
    const one = stream(`/sse?topic=${encodeURIComponent(topic)}`, {
      token: secret,
      via: "fetch",
      afterLost: "live",
      onevent: (event) => {
        turn.came += 1;
        // a fair sample of what comes in a turn, whatever its rate
        if (turn.sample.length < TURN_MAX) turn.sample.push(event);
        else if (Math.random() * turn.came < TURN_MAX) turn.sample[Math.floor(Math.random() * TURN_MAX)] = event;
      },
      onstate: (name, told) => setState([name, told ?? ""]),
    });
    return () => one.close();
  }, [topic, secret]);
  useEffect(() => {
    const timer = setInterval(() => {
      const { sample, came } = waiting.current;
      if (!came) return;
      Object.assign(waiting.current, { sample: [], came: 0 });
      // what comes during a pause is counted as left out: the page is not to grow
      const fresh = isPaused ? [] : [...sample].sort((one, other) => other.time_us - one.time_us);
      setSeen((old) => ({ rows: [...fresh, ...old.rows].slice(0, SHOWN_MAX), came: old.came + came, left: old.left + came - fresh.length }));
    }, TURN_MS);
    return () => clearInterval(timer);
  }, [isPaused]);
  const isRefused = state === "lost" && /HTTP 40[13]/.test(why);
  if (isRefused) return html`<${Trouble} problem=${{ message: why, status: 403 }} />`;
  return html`<div class="pages">
      <span class=${`link ${state}`} role="status">${state}${why && `: ${why}`}</span>
      <button onClick=${() => setPaused(!isPaused)} aria-pressed=${isPaused}>${isPaused ? "Go on" : "Pause"}</button>
      <span class="quiet small">${count(seen.came)} came${seen.left ? `, ${count(seen.left)} of them were left out` : ""}; the newest ${SHOWN_MAX} are kept</span>
    </div>
    ${seen.rows.length
      ? html`<div class="card scroll tail" role="region" aria-label="Newest events" tabindex="0"><table>
          <thead><tr><th scope="col">time</th><th scope="col">event</th><th scope="col">payload</th><th scope="col"><span class="unseen">more</span></th></tr></thead>
          <tbody>${seen.rows.map((event) => {
            const id = `${event.source}:${event.seq}`;
            const payload = given(event);
            return html`<tr key=${id}><td class="top quiet"><${At} us=${event.time_us} millis /></td>
              <td class="top"><a href=${link("event", { topic: event.topic, id })}><code>${shortId(id)}</code></a></td>
              <td class="wide">${open === id ? html`<${Payload} given=${payload} /><${Headers} headers=${event.headers} />` : html`<span class="mono">${oneLine(payload).slice(0, 160)}</span>`}</td>
              <td class="act top"><button class="plain" aria-expanded=${open === id} onClick=${() => setOpen(open === id ? "" : id)}>${open === id ? "Less" : "More"}</button></td></tr>`;
          })}</tbody></table></div>`
      : html`<div class="empty"><p>No event since this page was opened</p><p class="quiet">Events are shown here as they are stored.</p></div>`}`;
}

const given = (event) =>
  event.payload_base64 === undefined
    ? { text: event.payload ?? "", bytes: new TextEncoder().encode(event.payload ?? "").length }
    : { base64: event.payload_base64, bytes: Math.floor((event.payload_base64.length * 3) / 4) };

export function Headers({ headers }) {
  const rows = Object.entries(headers ?? {});
  return rows.length > 0 && html`<dl class="small">${rows.map(([name, value]) => html`<dt><code>${name}</code></dt><dd>${String(value)}</dd>`)}</dl>`;
}
