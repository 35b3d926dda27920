"""A real browser, and a node that is killed with -9, frozen, or behind something that answers in its place."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.gateway.http.node_process import Living
from tests.real.browser import browser_page, changes, chromium, post, screenshot, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path / "data", "http.retry_ms=200") as one:
        yield one


@pytest.mark.parametrize("via", ["shared", "broadcast", "eventsource", "fetch", "websocket"])
def test_a_page_keeps_its_stream_through_kill_9_and_restart_every_event_once(
    node: Living, browser: Browser, via: str
) -> None:
    with browser_page(browser, node.url, f"#via={via}") as page:
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
        states = changes(page)
        assert states[0] == "live"
        assert {"recovering", "recovered"} <= set(states)
        assert "lost" not in states
        screenshot(page, f"recovered-{via}")


@pytest.mark.parametrize("via", ["shared", "eventsource", "fetch"])
def test_a_purged_checkpoint_is_shown_as_lost_not_as_a_fresh_start(
    tmp_path: Path, browser: Browser, via: str
) -> None:
    node = Living(
        tmp_path / "data", "retention.bytes_max=16384", "journal.segment_bytes=4096", "http.retry_ms=200"
    )
    with node, browser_page(browser, node.url, f"#via={via}") as page:
        wait_for(page, "states.includes('live')")
        post(node, "seen")
        wait_for(page, "events.length == 1")
        node.kill()
        purge(node)
        node.start()
        wait_for(page, "states.includes('lost')")
        page.evaluate(OTHER)
        wait_for(page, "window.isOtherLive")
        post(node, "after the loss")
        wait_for(page, "window.hasOther")  # whatever comes has come
        assert page.evaluate("events") == ["seen"]
        assert "recovered" not in page.evaluate("states")
        assert "retention" in (page.text_content("#why") or "")
        screenshot(page, f"lost-{via}")


OTHER = """() => {
  const other = new EventSource("/sse?topic=what/chat");
  other.addEventListener("opened", () => (window.isOtherLive = true));
  other.onmessage = () => (window.hasOther = true);
}"""


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


def test_a_frozen_node_is_not_shown_as_live(tmp_path: Path, browser: Browser) -> None:
    with Living(tmp_path / "data", "http.heartbeat_s=1") as node, browser_page(browser, node.url) as page:
        wait_for(page, "states.includes('live')")
        post(node, "before")
        wait_for(page, "events.length == 1")
        node.freeze()
        wait_for(page, "states.includes('recovering')")
        assert "the server sent nothing for 2 s" in page.evaluate("reasons")
        node.thaw()
        post(node, "after")
        wait_for(page, "events.length == 2")
        assert page.evaluate("events") == ["before", "after"]
        assert "lost" not in page.evaluate("states")


class Stranger(http.server.BaseHTTPRequestHandler):
    """Something that answers in the place of a node, and passes on only the module for pages."""

    node = ""

    def do_GET(self) -> None:
        if self.path.startswith("/reknit"):
            with urlopen(self.node + self.path) as answer:
                self._say(200, answer.read(), "text/javascript")
        elif self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", "http://login.invalid/")
            self.end_headers()
        elif self.path[1:4].isdecimal():
            self._say(int(self.path[1:4]), b"<html><h1>Not you</h1></html>", "text/html")
        else:
            self._say(200, b"", "text/html")

    def _say(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def stranger(node: Living) -> Iterator[str]:
    handler = type("Handler", (Stranger,), {"node": node.url})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


OPEN = """async ([base, path, via]) => {
  const { stream } = await import(base + "/reknit.js");
  const states = [];
  return new Promise((done) => {
    const one = stream(base + path, { via, onstate: (state, why) => {
      states.push([state, why]);
      if (state === "lost") done(states);
    } });
    const looking = setInterval(() => {
      if (!one.why.includes("HTTP 502")) return;
      clearInterval(looking);
      one.close();
      done(states);
    }, 50);
  });
}"""


@pytest.mark.parametrize(
    ("via", "end", "kind"),
    [
        # EventSource says nothing about its failure: the next attempt, with fetch, tells it
        ("eventsource", "sse", "stream"),
        ("fetch", "sse", "stream"),
        ("websocket", "ws", "WebSocket"),
        ("sharedworker", "ws", "WebSocket"),
        ("broadcast", "ws", "WebSocket"),
    ],
)
def test_what_answers_in_the_nodes_place_is_told_with_the_address(
    node: Living, browser: Browser, via: str, end: str, kind: str
) -> None:
    with stranger(node) as other, browser_page(browser, other) as page:
        for what, expected in (
            ("403", f"answered HTTP 403, which is no {kind}: Not you"),
            ("200", f"answered HTTP 200, which is no {kind}: Not you"),
            ("moved", "redirects to another site, which is no stream"),
        ):
            states = page.evaluate(OPEN, [other, f"/{what}/sse?topic=a", via])
            assert states[-1][0] == "lost", (what, states)
            assert states[-1][1].startswith(f"{other}/{what}/{end} {expected}")
        states = page.evaluate(OPEN, [other, "/502/sse?topic=a", via])
        assert [state for state, _ in states] == ["waiting", "closed"]


@pytest.mark.parametrize("via", [None, "fetch", "websocket"])
def test_a_page_of_a_foreign_site_is_told_which_setting_is_missing(
    node: Living, browser: Browser, via: str | None
) -> None:
    with stranger(node) as other, browser_page(browser, other) as page:
        [*_, (state, why)] = page.evaluate(OPEN, [node.url, "/sse?topic=a", via])
        assert (state, why) == (
            "lost",
            f"{node.url} answers, but not to pages of {other}: add it to http.origins there",
        )
