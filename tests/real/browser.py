"""A page in Chromium, with a stream of a node, for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.gateway.http.node_process import Living
from tests.gateway.http.programs import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-features=LocalNetworkAccessChecks",  # a test's page has no address: it may connect to this machine
]
WAIT_MS = 120_000
PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>tunnel</title>
<style>body { font: 16px sans-serif; margin: 2em } #state { font-weight: bold }
#state.lost { color: #b00020 } #state.recovered, #state.live { color: #00701a }</style>
<h1>A tunnel</h1><p>state: <span id="state">opening</span> <span id="why"></span></p><ol id="events"></ol>
<script type="module">
import { stream } from "/reknit.js";
window.events = []; window.states = []; window.reasons = [];
window.one = stream("/sse?topic=what/chat", {
  via: new URLSearchParams(location.hash.slice(1)).get("via") ?? "eventsource",
  checkpoint: new URLSearchParams(location.hash.slice(1)).get("checkpoint") ?? "",
  onevent: (event) => {
    window.events.push(event.payload);
    const item = document.createElement("li");
    item.textContent = event.payload;
    document.getElementById("events").append(item);
  },
  onstate: (state, why) => {
    window.states.push(state);
    window.reasons.push(why ?? "");
    document.getElementById("state").textContent = document.getElementById("state").className = state;
    document.getElementById("why").textContent = why ? `(${why})` : "";
  },
});
</script>"""


def post(node: Living, payload: str) -> None:
    body = urlencode({"kn_to": "/what/chat", "kn_payload": payload}).encode()
    with urlopen(f"{node.url}/kn", body, timeout=150) as answer:
        assert answer.status == 200


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own: starting one takes seconds."""
    if not CHROMIUM:
        pytest.skip("chromium is missing: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page(browser: Browser, url: str, fragment: str = "", body: str = PAGE) -> Iterator[Page]:
    """A page that is served from this origin, as is its stream."""
    page = browser.new_page()
    page.route("**/page.html", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(f"{url}/page.html{fragment}")
    try:
        yield page
    finally:
        page.context.close()


def screenshot(page: Page, name: str) -> None:
    folder = os.environ.get("TUNNEL_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png")


def changes(page: Page) -> list[str]:
    """The states of a page's stream, without `waiting`, which a busy machine may bring before the first answer."""
    states: list[str] = page.evaluate("states")
    return [one for one in states if one != "waiting"]


def wait_for(page: Page, condition: str) -> Any:
    return page.wait_for_function(condition, timeout=WAIT_MS)
