"""curl and a real browser, and a node that is killed with -9."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from reknit.client import tunnel
from tests.gateway.http.node_process import Living

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.real

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>tunnel</title>
<style>body { font: 16px sans-serif; margin: 2em } #state { font-weight: bold }
#state.lost { color: #b00020 } #state.recovered, #state.live { color: #00701a }</style>
<h1>A tunnel</h1><p>state: <span id="state">opening</span> <span id="why"></span></p><ol id="events"></ol>
<script type="module">
import { stream } from "/reknit.js";
window.events = []; window.states = [];
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
    document.getElementById("state").textContent = document.getElementById("state").className = state;
    document.getElementById("why").textContent = why ? `(${why})` : "";
  },
});
</script>"""


def post(node: Living, payload: str) -> None:
    body = urlencode({"kn_to": "/what/chat", "kn_payload": payload}).encode()
    with urlopen(f"{node.url}/kn", body, timeout=150) as answer:
        assert answer.status == 200


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path / "data", "http.retry_ms=200") as one:
        yield one


# -- curl


@curl
def test_curl_posts_and_reads(node: Living) -> None:
    def ask(*args: str) -> str:
        return subprocess.run(["curl", "-sN", *args], capture_output=True, text=True, timeout=60).stdout

    posted = ask(
        "-d", "kn_to=/what/chat;kn_payload=hello;kn_id=m1;kn_response_format=simple", f"{node.url}/kn"
    )
    assert "status: 200 Notified\n" in posted
    tunnel_text = ask("--max-time", "1", f"{node.url}/kn/what/chat?do_max_age=60;kn_response_format=simple")
    assert tunnel_text.index("200 Watching topic") < tunnel_text.index("kn_id: m1")
    streamed = ask("--max-time", "1", "-H", f"Last-Event-ID: {'0' * 16}-0-0", f"{node.url}/sse?topic=what/**")
    assert '"state":"lost"' in streamed
    refused = ask("-i", f"{node.url}/kn?kn_from=/what/chat;do_since_checkpoint=00-0-0")
    assert refused.startswith("HTTP/1.1 404 Expired")


# -- kill -9


@pytest.mark.parametrize("scheme", ["kn_event_hash", "kn_route_checkpoint"])
def test_the_python_client_gets_every_event_once_through_kill_9(tmp_path: Path, scheme: str) -> None:
    async def test(node: Living) -> None:
        got: list[str] = []
        async with tunnel.open(node.url, "what/chat") as one:
            events = aiter(one)
            for round_ in range(3):
                for number in range(20):
                    await tunnel.notify(node.url, "what/chat", f"{round_}:{number}")
                node.kill()
                await asyncio.to_thread(node.start)
                while len(got) < 20 * (round_ + 1):
                    got.append((await anext(events)).payload.decode())
            assert got == [f"{round_}:{number}" for round_ in range(3) for number in range(20)]
            await tunnel.notify(node.url, "what/chat", "the end")
            assert (await anext(events)).payload == b"the end"
            assert one.state is tunnel.State.RECOVERED

    with Living(tmp_path / "data", f"http.scheme={scheme}") as node:
        asyncio.run(asyncio.wait_for(test(node), 150))


# -- a browser


@contextmanager
def browser_page(node: Living, fragment: str = "") -> Iterator[Page]:
    if not CHROMIUM:
        pytest.skip("chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        page = browser.new_page()
        # the page is served from the node's own origin, as is its tunnel
        page.route("**/page.html", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        page.goto(f"{node.url}/page.html{fragment}")
        try:
            yield page
        finally:
            browser.close()


def screenshot(page: Page, name: str) -> None:
    folder = os.environ.get("TUNNEL_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png")


def wait_for(page: Page, condition: str) -> Any:
    return page.wait_for_function(condition, timeout=20_000)


@pytest.mark.parametrize("via", ["eventsource", "fetch"])
def test_a_page_keeps_its_stream_through_kill_9_and_restart_every_event_once(node: Living, via: str) -> None:
    with browser_page(node, f"#via={via}") as page:
        wait_for(page, "states.includes('live')")
        expected: list[str] = []
        for round_ in range(3):
            for number in range(10):
                expected.append(f"{round_}:{number}")
                post(node, expected[-1])
            node.kill()
            node.start()
            post(node, f"{round_}:after")
            expected.append(f"{round_}:after")
            wait_for(page, f"events.length >= {len(expected)}")
        assert page.evaluate("events") == expected
        states = page.evaluate("states")
        assert states[0] == "live"
        assert {"recovering", "recovered"} <= set(states)
        assert "lost" not in states
        screenshot(page, f"recovered-{via}")


@pytest.mark.parametrize("via", ["eventsource", "fetch"])
def test_a_purged_checkpoint_is_shown_as_lost_not_as_a_fresh_start(tmp_path: Path, via: str) -> None:
    node = Living(
        tmp_path / "data", "retention.bytes_max=16384", "journal.segment_bytes=4096", "http.retry_ms=200"
    )
    with node, browser_page(node, f"#via={via}") as page:
        wait_for(page, "states.includes('live')")
        post(node, "seen")
        wait_for(page, "events.length == 1")
        node.kill()
        purge(node)
        node.start()
        wait_for(page, "states.includes('lost')")
        post(node, "after the loss")
        page.wait_for_timeout(1_000)
        assert page.evaluate("events") == ["seen"]
        assert "recovered" not in page.evaluate("states")
        assert "retention" in (page.text_content("#why") or "")
        screenshot(page, f"lost-{via}")


def purge(node: Living) -> None:
    """Publish so much while the page is disconnected that retention removes what it has seen."""
    epoch = (node.data / "epoch").read_text().strip()
    with Living(node.data, *node.settings) as other:
        code = 200
        while code == 200:
            post(other, "x" * 3_000)
            request = f"{other.url}/kn?kn_from=/what/chat;do_since_checkpoint={epoch}-0-0"
            with contextlib.suppress(HTTPError), urlopen(request, timeout=150) as answer:
                code = answer.status
                continue
            code = 404


def test_the_pages_own_memory_of_what_it_has_seen(node: Living) -> None:
    with browser_page(node) as page:
        script = """async () => { const { Seen } = await import('/reknit.js'); const seen = new Seen(1000, 3);
            return [seen.add('a', 0), seen.add('a', 1000), seen.add('a', 1001), [1,2,3,4].map(k => seen.add(k, 1002)),
                    seen.added.size]; }"""
        assert json.loads(json.dumps(page.evaluate(script))) == [True, False, True, [True] * 4, 3]
