// Parts of pages: tables, bars, sparklines, filters, pages, problems.

import { html, useRef, useState } from "../vendor/htm-preact.js";
import { setToken, token } from "./api.js";
import { count } from "./format.js";
import { go } from "./route.js";

export const COLUMNS = ["accepted", "dead_lettered", "lost", "in_flight"];
const NAMES = { accepted: "accepted", dead_lettered: "dead-lettered", lost: "lost", in_flight: "in flight" };

/** One bar for what became of the published events. */
export function Bar({ row }) {
  const whole = Math.max(row.published, 1);
  const label = COLUMNS.map((name) => `${count(row[name])} ${NAMES[name]}`).join(", ");
  return html`<div class="bar" role="img" aria-label=${label} title=${label}>
    ${COLUMNS.map((name) => row[name] > 0 && html`<i class=${name} style=${{ width: `${(100 * row[name]) / whole}%` }} />`)}
  </div>`;
}

/** A table; each column is [title, row => cell, class]. */
export function Table({ caption, columns, rows, empty }) {
  if (!rows.length) return html`<p class="note">${empty}</p>`;
  return html`<div class="card"><table aria-label=${caption}>
    <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** The last values of a number, which the page remembers. */
export function Sparkline({ value, label }) {
  const kept = useRef([]);
  if (value !== undefined && value !== null) kept.current = [...kept.current, value].slice(-60);
  const values = kept.current;
  if (values.length < 2) return null;
  const top = Math.max(...values, 1);
  const points = values.map((one, at) => `${(at * 120) / (values.length - 1)},${25 - (24 * one) / top}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 120 26" role="img" aria-label=${label}><polyline points=${points} /></svg>`;
}

/** Filters of a view; they go into the address. Each is [name, label, choices?]. */
export function Filters({ view, params, fields }) {
  const submit = (event) => {
    event.preventDefault();
    go(view, Object.fromEntries(new FormData(event.target)));
  };
  return html`<form class="filters" onSubmit=${submit}>
    ${fields.map(
      ([name, label, choices]) => html`<label>${label}${
        choices
          ? html`<select name=${name} onChange=${(event) => event.target.form.requestSubmit()}>
              ${choices.map(([value, text]) => html`<option value=${value} selected=${(params[name] ?? "") === value}>${text}</option>`)}
            </select>`
          : html`<input name=${name} value=${params[name] ?? ""} spellcheck="false" autocomplete="off" />`
      }</label>`,
    )}
    <button>Show</button>
  </form>`;
}

/** Links to the pages of a list. */
export function Pages({ view, params, total, limit }) {
  const offset = Number(params.offset ?? 0);
  if (total <= limit) return html`<p class="quiet">${count(total)} in all</p>`;
  const move = (to) => go(view, { ...params, offset: to || "" });
  return html`<div class="pages">
    <button disabled=${offset <= 0} onClick=${() => move(Math.max(0, offset - limit))}>Back</button>
    <button disabled=${offset + limit >= total} onClick=${() => move(offset + limit)}>Next</button>
    <span class="quiet">${count(offset + 1)} to ${count(Math.min(offset + limit, total))} of ${count(total)}</span>
  </div>`;
}

/** What is wrong, and a field for a token if that is what is missing. */
export function Trouble({ problem, at }) {
  const [text, setText] = useState("");
  if (!problem) return null;
  const old = at ? ` These figures are from ${new Date(at).toLocaleTimeString()}.` : "";
  const enter = (event) => {
    event.preventDefault();
    setToken(text.trim());
  };
  return html`<div class="note wrong" role="alert">
    <p>${problem.message}.${old}</p>
    ${(problem.status === 401 || problem.status === 403) &&
    html`<form class="filters" onSubmit=${enter}>
      <label>Token (kept in this tab only)<input type="password" value=${text} autocomplete="off" onInput=${(event) => setText(event.target.value)} /></label>
      <button class="strong">Use it</button>
      ${token() && html`<button type="button" onClick=${() => setToken("")}>Forget mine</button>`}
    </form>`}
  </div>`;
}
