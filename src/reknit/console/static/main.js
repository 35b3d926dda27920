// The console: a header, and the view that the address names.

import { html, render } from "./vendor/htm-preact.js";
import { link, useRoute } from "./lib/route.js";
import { OneEvent } from "./views/event.js";
import { Fabric } from "./views/fabric.js";
import { Ledger } from "./views/ledger.js";
import { Letters } from "./views/letters.js";
import { Losses } from "./views/losses.js";
import { Node } from "./views/node.js";
import { Subscribers } from "./views/subscribers.js";
import { Topic, Topics } from "./views/topics.js";

const VIEWS = {
  ledger: ["Ledger", Ledger],
  topics: ["Topics", Topics],
  subscribers: ["Subscribers", Subscribers],
  letters: ["Dead letters", Letters],
  losses: ["Losses", Losses],
  event: ["Event", OneEvent],
  fabric: ["Fabric", Fabric],
  node: ["Node", Node],
  topic: ["", Topic],
};

function Console() {
  const { view, params } = useRoute();
  const [title, View] = VIEWS[view] ?? VIEWS.ledger;
  document.title = `${title || params.name || "reknit"} – reknit`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header>
      <a class="name" href=${link("ledger")}><img src="/console/icon.svg" alt="" />reknit</a>
      <nav aria-label="Views">
        ${Object.entries(VIEWS).map(
          ([name, [text]]) =>
            text && html`<a href=${link(name)} aria-current=${name === view || (name === "topics" && view === "topic") ? "page" : null}>${text}</a>`,
        )}
      </nav>
    </header>
    <main id="main" tabindex="-1"><${View} params=${params} key=${view} /></main>`;
}

render(html`<${Console} />`, document.getElementById("console"));
