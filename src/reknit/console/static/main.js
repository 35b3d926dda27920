// The console: navigation, the state of the connection, and the view that the address names.

import { get, token } from "./lib/api.js";
import { html, render, useEffect, useRef } from "./lib/html.js";
import { heardAt, link as connection } from "./lib/live.js";
import { me } from "./lib/rights.js";
import { link, route } from "./lib/route.js";
import { Connections } from "./views/connections.js";
import { Events } from "./views/event.js";
import { Fabric } from "./views/fabric.js";
import { Ledger } from "./views/ledger.js";
import { Letters } from "./views/letters.js";
import { Losses } from "./views/losses.js";
import { Node } from "./views/node.js";
import { Pipelines } from "./views/pipelines.js";
import { Sources } from "./views/sources.js";
import { Subscribers } from "./views/subscribers.js";
import { Topic } from "./views/topic.js";
import { Topics } from "./views/topics.js";

const VIEWS = {
  ledger: ["Ledger", Ledger],
  fabric: ["Fabric", Fabric],
  topics: ["Topics", Topics],
  event: ["Events", Events],
  letters: ["Dead letters", Letters],
  losses: ["Losses", Losses],
  sources: ["Sources", Sources],
  subscribers: ["Subscribers", Subscribers],
  connections: ["Connections", Connections],
  pipelines: ["Pipelines", Pipelines],
  node: ["Node", Node],
  topic: ["", Topic],
};
const ABOVE = { topic: "topics" };

function Console() {
  const { view, params } = route.value;
  const name = view in VIEWS ? view : "ledger";
  const [title, View] = VIEWS[name];
  const main = useRef();
  const shown = useRef(name);
  useEffect(() => {
    document.title = `${title || params.name || "reknit"} · reknit`;
    if (shown.current !== name) main.current?.focus({ preventScroll: true });
    shown.current = name;
    document.querySelector("nav.views a[aria-current]")?.scrollIntoView?.({ block: "nearest", inline: "center" });
  }, [name, params.name]);
  useEffect(() => {
    get("whoami").then((found) => (me.value = found), () => (me.value = null));
  }, [token.value]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>To the content</a>
    <header>
      <a class="brand" href=${link("ledger")}><img src="/console/icon.svg" alt="" width="26" height="26" />reknit</a>
      <nav class="views" aria-label="Views">
        ${Object.entries(VIEWS).map(
          ([one, [text]]) => text && html`<a href=${link(one)} aria-current=${one === name || one === ABOVE[name] ? "page" : null}>${text}</a>`,
        )}
      </nav>
      <${Foot} />
    </header>
    <main id="main" tabindex="-1" ref=${main}><${View} params=${params} key=${name} /></main>`;
}

const STATES = { live: "Live", recovered: "Live", opening: "Connecting", waiting: "Waiting", recovering: "Reconnecting", lost: "Not connected", closed: "Closed" };

function Foot() {
  const [state, why] = connection.value;
  const is = me.value;
  const isAway = state === "recovering" || state === "waiting";
  return html`<div class="foot">
    <p class=${`link ${state}`} role="status" title=${why}>${STATES[state] ?? state}</p>
    ${is && html`<p class="quiet small">${is.is_open
      ? "Open: this node has no rules, so whoever reaches it may do everything."
      : `${is.name || "anonymous"}${is.is_admin ? ", admin" : ", may only look"}`}</p>`}
  </div>
  ${isAway && heardAt.value > 0 && html`<p class="away" role="alert">The node does not answer. These figures are from ${new Date(heardAt.value).toLocaleTimeString("en-GB")}; trying again.</p>`}`;
}

render(html`<${Console} />`, document.getElementById("console"));
