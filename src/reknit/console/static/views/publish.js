// Publish an event from the page, for those who may.

import { post } from "../lib/api.js";
import { html, useRef, useState } from "../lib/html.js";
import { mayPublish, notAllowed } from "../lib/rights.js";
import { link } from "../lib/route.js";

export function PublishButton({ topic = "" }) {
  const box = useRef();
  const [told, setTold] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const may = mayPublish();
  async function send(event) {
    event.preventDefault();
    const { topic: to, text, key, headers } = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    try {
      setTold({ ...(await post("publish", { topic: to, text, key, headers: parse(headers) })) });
    } catch (problem) {
      setTold({ problem });
    }
    setBusy(false);
  }
  return html`<button class="strong" disabled=${!may} title=${may ? "" : notAllowed("publish TOPIC")} onClick=${() => { setTold(null); box.current.showModal(); }}>Publish…</button>
    <dialog ref=${box} aria-labelledby="publish-title">
      <h2 id="publish-title">Publish an event</h2>
      <form onSubmit=${send}>
        <label>Topic<input name="topic" required value=${topic} placeholder="plant/line1/temp" spellcheck="false" autocomplete="off" /></label>
        <label>Payload<textarea name="text" spellcheck="false"></textarea></label>
        <label>Key (optional)<input name="key" autocomplete="off" /></label>
        <label>Headers (optional, one NAME: VALUE a line)<textarea name="headers" spellcheck="false" rows="2"></textarea></label>
        ${told?.problem && html`<p class="note wrong" role="alert">${told.problem.message}</p>`}
        ${told?.id && html`<p class="note good" role="status">Stored. <a href=${link("event", { topic: told.topic, id: told.id })} onClick=${() => box.current.close()}>See what becomes of it</a></p>`}
        <div class="actions"><button class="strong" disabled=${isBusy}>Publish</button><button type="button" onClick=${() => box.current.close()}>Close</button></div>
      </form>
    </dialog>`;
}

const parse = (text) =>
  Object.fromEntries(
    text.split("\n").map((line) => line.split(/:(.*)/s)).filter(([name]) => name.trim()).map(([name, value = ""]) => [name.trim(), value.trim()]),
  );
