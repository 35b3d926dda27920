// Parts of pages: tables, bars, sparklines, filters, pages, payloads, problems.

import { html, useState } from "./html.js";
import { setToken, token } from "./api.js";
import { asHex, asJson, count, duration, short, time, utc } from "./format.js";
import { heardAt } from "./live.js";
import { go } from "./route.js";

export const COLUMNS = ["accepted", "dead_lettered", "lost", "in_flight"];
export const NAMES = { accepted: "accepted", dead_lettered: "dead-lettered", lost: "lost", in_flight: "in flight" };

/** The heading of a view, with a sentence, and what can be done on the right. */
export const Head = ({ title, text, children }) => html`<div class="head">
  <div><h1>${title}</h1>${text && html`<p class="quiet">${text}</p>`}</div>
  ${children && html`<div class="actions">${children}</div>`}
</div>`;

/** One bar for what became of the published events. */
export function Bar({ row, kind = "" }) {
  const whole = Math.max(row.published, 1);
  const label = COLUMNS.map((name) => `${count(row[name])} ${NAMES[name]}`).join(", ");
  return html`<div class=${`bar ${kind}`} role="img" aria-label=${label} title=${label}>
    ${COLUMNS.map((name) => row[name] > 0 && html`<i class=${name} style=${{ flexGrow: Math.max(row[name] / whole, 0.012) }} />`)}
  </div>`;
}

/** The last values of a number, as a line. */
export function Spark({ values, label }) {
  if (!values || values.length < 2) return html`<span class="spark none" aria-hidden="true"></span>`;
  const top = Math.max(...values, 1e-9);
  const step = 96 / (values.length - 1);
  const points = values.map((one, at) => `${(2 + at * step).toFixed(1)},${(22 - (19 * one) / top).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${label}>
    <polyline points=${points} />
  </svg>`;
}

/** A table; each column is [title, row => cell, class]. The last column may be for actions. */
export function Table({ caption, columns, rows, empty, keyOf }) {
  if (!rows.length) return html`<${Empty} ...${typeof empty === "string" ? { title: empty } : empty} />`;
  return html`<div class="card scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title || html`<span class="unseen">more</span>`}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf?.(row)}>${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** What is shown where there is nothing, and what makes something. */
export const Empty = ({ title, text, command }) => html`<div class="empty">
  <p>${title}</p>
  ${text && html`<p class="quiet">${text}</p>`}
  ${command && html`<code class="command">${command}</code>`}
</div>`;

export const Lag = ({ row }) =>
  html`${!row.in_flight ? html`<span class="quiet">–</span>` : row.lag_s === null || row.lag_s === undefined ? "?" : duration(row.lag_s)}`;

export const At = ({ us, millis }) => html`<time title=${utc(us)} dateTime=${us ? new Date(us / 1000).toISOString() : ""}>${time(us, millis)}</time>`;

/** Filters of a view; they go into the address. Each is [name, label, choices or placeholder or type]. */
export function Filters({ view, params, fields, fixed = {}, children, button = "Apply" }) {
  const submit = (event) => {
    event.preventDefault();
    go(view, { ...fixed, ...Object.fromEntries(new FormData(event.target)) });
  };
  return html`<form class="filters" onSubmit=${submit} role="search">
    ${fields.map(([name, label, more]) => html`<label>${label}${
      Array.isArray(more)
        ? html`<select name=${name} onChange=${(event) => event.target.form.requestSubmit()}>
            ${more.map(([value, text]) => html`<option value=${value} selected=${(params[name] ?? "") === value}>${text}</option>`)}
          </select>`
        : html`<input name=${name} type=${more === "datetime-local" ? more : "text"} value=${params[name] ?? ""} placeholder=${more === "datetime-local" ? "" : more}
            spellcheck="false" autocomplete="off" key=${`${name}${params[name] ?? ""}`} />`
    }</label>`)}
    <button>${button}</button>${children}
  </form>`;
}

/** Links to the pages of a list. */
export function Pages({ view, params, total, limit }) {
  const offset = Number(params.offset ?? 0);
  if (total <= limit && !offset) return total > 10 ? html`<p class="quiet small">${count(total)} in all</p>` : null;
  const move = (to) => go(view, { ...params, offset: to || "" });
  return html`<nav class="pages" aria-label="Pages">
    <button disabled=${offset <= 0} onClick=${() => move(Math.max(0, offset - limit))}>Back</button>
    <button disabled=${offset + limit >= total} onClick=${() => move(offset + limit)}>Next</button>
    <span class="quiet">${count(Math.min(offset + 1, total))} to ${count(Math.min(offset + limit, total))} of ${count(total)}</span>
  </nav>`;
}

/** A payload as JSON, text or hexadecimal digits. */
export function Payload({ given, isHidden }) {
  const json = asJson(given);
  const kinds = [...(json ? ["JSON"] : []), ...(given?.text !== undefined ? ["Text"] : []), "Hex"];
  const [chosen, setChosen] = useState("");
  if (isHidden) return html`<p class="note">Payloads and headers are hidden from you by a rule: you may watch this topic, and not subscribe to it.</p>`;
  if (!given) return html`<p class="quiet">No payload</p>`;
  const kind = kinds.includes(chosen) ? chosen : kinds[0];
  const body = { JSON: () => json, Text: () => given.text, Hex: () => asHex(given) }[kind]();
  return html`<div class="payload">
    <div class="tabs" role="group" aria-label="How to show the payload">${kinds.map(
      (one) => html`<button aria-pressed=${one === kind} onClick=${() => setChosen(one)}>${one}</button>`,
    )}<span class="quiet small">${count(given.bytes)} bytes</span></div>
    <pre tabindex="0">${body || " "}</pre>
  </div>`;
}

/** What is wrong, and a field for a token if that is what is missing. */
export function Trouble({ problem }) {
  const [text, setText] = useState("");
  if (!problem) return null;
  const enter = (event) => {
    event.preventDefault();
    setToken(text.trim());
  };
  return html`<div class="note wrong" role="alert">
    <p>${problem.message}.${heardAt.value > 0 && problem.status === 0 && ` The figures are from ${new Date(heardAt.value).toLocaleTimeString("en-GB")}.`}</p>
    ${(problem.status === 401 || problem.status === 403) &&
    html`<form class="filters" onSubmit=${enter}>
      <label>Token (kept in this tab only)<input type="password" value=${text} autocomplete="off" onInput=${(event) => setText(event.target.value)} /></label>
      <button class="strong">Use it</button>
      ${token.value && html`<button type="button" onClick=${() => setToken("")}>Forget mine</button>`}
    </form>`}
  </div>`;
}

/** A view that has no figures yet. */
export const Waiting = ({ title, problem }) => html`<${Head} title=${title} /><${Trouble} problem=${problem} />
  ${!problem && html`<div class="skeleton" role="status"><span class="unseen">Reading the figures</span></div>`}`;

export const Rate = ({ value }) => html`${value ? short(value) : html`<span class="quiet">0</span>`}`;
export const Number_ = ({ value, kind }) => html`<span class=${value ? kind : "quiet"}>${count(value)}</span>`;
export const Code = ({ children }) => html`<code>${children}</code>`;
