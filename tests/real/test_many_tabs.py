"""Many tabs of one site in a real browser: they share one connection, also when tabs, nodes and networks come and go."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from reknit.client.blocking.session import connect_sync
from reknit.processes.process import free_port
from tests.gateway.http.node_process import Living
from tests.gateway.http.programs import CHROMIUM
from tests.real.browser import FLAGS, changes, chromium, post, wait_for
from tests.tokens import write_tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.real

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>tab</title><script type="module">
import { stream } from "/reknit.js";
const asked = new URLSearchParams(location.hash.slice(1));
window.got = []; window.states = []; window.reasons = [];
window.blockMs = 0;
const take = (event) => window.got.push(event.payload.split(":")[0]);
window.open1 = (topic, options) => stream("/sse?topic=" + topic, {
  via: asked.get("via") ?? undefined, token: asked.get("token") ?? undefined,
  onstate: (state, why) => { window.states.push(state); window.reasons.push(why); },
  onevent: take,
  onbatch: asked.get("via") === "eventsource" ? undefined : (events) => {
    events.forEach(take);
    for (const until = Date.now() + window.blockMs; Date.now() < until; );
  },
  ...options,
});
window.one = open1(asked.get("topic") ?? "what/chat", { creditBytes: Number(asked.get("credit") ?? 0) || undefined });
</script>"""
BOTH = pytest.mark.parametrize("via", ["sharedworker", "broadcast"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@contextmanager
def tabs_of(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.route("**/page.html", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    try:
        yield context
    finally:
        context.close()


def tab(context: BrowserContext, url: str, fragment: str = "") -> Page:
    page = context.new_page()
    page.goto(f"{url}/page.html#{fragment}", timeout=120_000)
    return page


def live(page: Page) -> None:
    wait_for(page, "['live', 'recovered'].includes(states.at(-1))")


def got(page: Page, count: int) -> list[str]:
    """What a tab got, when that is so many."""
    wait_for(page, f"got.length >= {count}")
    events: list[str] = page.evaluate("got")
    return events


@BOTH
def test_twenty_tabs_share_one_connection_through_kill_9_and_the_end_of_a_tab(
    tmp_path: Path, browser: Browser, via: str
) -> None:
    # A node that has room for one: all others would be refused. Where a tab leads, the tabs may be told apart as slow
    # when the node is back, and get streams of their own on that connection, which count as tunnels.
    room = 1 if via == "sharedworker" else 20
    with (
        Living(tmp_path / "data", f"http.tunnels_per_address_max={room}") as node,
        tabs_of(browser) as context,
    ):
        pages = [tab(context, node.url, f"via={via}") for _ in range(20)]
        for page in pages:
            live(page)
        post(node, "1")
        for page in pages:
            assert got(page, 1) == ["1"]
        node.kill()
        node.start()
        post(node, "2")
        for page in pages:
            assert got(page, 2) == ["1", "2"]
        pages.pop(0).close()  # the one with the connection, if it is in a tab
        post(node, "3")
        for page in pages:
            assert got(page, 3) == ["1", "2", "3"]
            assert "lost" not in page.evaluate("states")


@BOTH
def test_topics_are_added_and_removed_on_the_connection_that_is_there(
    tmp_path: Path, browser: Browser, via: str
) -> None:
    with Living(tmp_path / "data", "http.tunnels_per_address_max=2") as node, tabs_of(browser) as context:
        page, other = (
            tab(context, node.url, f"via={via}"),
            tab(context, node.url, f"via={via}&topic=what/else"),
        )
        live(page)
        live(other)
        page.evaluate("() => { window.two = open1('what/else'); }")
        wait_for(page, "two.state === 'live'")
        with connect_sync(native(node)) as session:
            session.publish("what/else", "both")
            assert (got(page, 1), got(other, 1)) == (["both"], ["both"])
            page.evaluate("two.close()")
            session.publish("what/else", "other")
            session.publish("what/chat", "page")
            assert (got(page, 2), got(other, 2)) == (["both", "page"], ["both", "other"])


def native(node: Living) -> str:
    """The node's address for programs, from its greeting."""
    return next(word.strip(",;") for word in node.greeting.split() if word.startswith("tcp://"))


def test_what_waits_for_a_connection_says_so(tmp_path: Path, browser: Browser) -> None:
    with Living(tmp_path / "data") as node, tabs_of(browser) as context:
        pages = [tab(context, node.url, "via=eventsource") for _ in range(5)]
        for page in pages:
            live(page)
        # the sixth and last connection of a browser to one server
        pages[0].evaluate("() => { window.six = open1('a'); }")
        wait_for(pages[0], "six.state === 'live'")
        pages[1].evaluate("() => { window.seven = open1('a'); }")
        wait_for(pages[1], "seven.state === 'waiting'")
        assert "six connections" in pages[1].evaluate("seven.why")
        pages[0].evaluate("six.close()")
        wait_for(pages[1], "seven.state === 'live'")


@BOTH
def test_a_frozen_tab_holds_up_nobody_and_gets_everything_once_when_it_is_seen_again(
    tmp_path: Path, browser: Browser, via: str
) -> None:
    count, size = 300, 2_000
    with Living(tmp_path / "data") as node, tabs_of(browser) as context:
        page, other = (tab(context, node.url, f"via={via}&credit=50000") for _ in range(2))
        live(page)
        live(other)
        session = context.new_cdp_session(other)
        session.send("Page.setWebLifecycleState", {"state": "frozen"})
        with connect_sync(native(node)) as publisher:
            for number in range(count):
                publisher.publish("what/chat", f"{number}:".ljust(size, "x"))
        expected = [str(number) for number in range(count)]
        assert got(page, count) == expected
        session.send("Page.setWebLifecycleState", {"state": "active"})
        assert got(other, count) == expected
        live(other)


def test_a_page_that_is_too_busy_gets_no_more_than_its_credit_until_it_has_time(
    tmp_path: Path, browser: Browser
) -> None:
    count = 200
    with Living(tmp_path / "data") as node, tabs_of(browser) as context:
        page = tab(context, node.url, "credit=50000")
        live(page)
        page.evaluate("blockMs = 20")
        with connect_sync(native(node)) as publisher:
            for number in range(count):
                publisher.publish("what/chat", f"{number}:".ljust(5_000, "x"))
        assert got(page, count) == [str(number) for number in range(count)]
        assert "lost" not in page.evaluate("states")


class Relay:
    """A way to a node that can be cut: then nobody is there."""

    def __init__(self, to: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._to = to
        self._listener: socket.socket | None = None
        self._sockets: list[socket.socket] = []

    def open(self) -> None:
        listener = self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        assert self._listener is not None
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            self._sockets.append(here)
            there = socket.create_connection(("127.0.0.1", self._to))
            self._sockets.append(there)
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.mark.parametrize("via", ["sharedworker", "broadcast", "eventsource"])
def test_a_page_that_was_offline_resumes_at_once_when_it_is_online(
    tmp_path: Path, browser: Browser, via: str
) -> None:
    with Living(tmp_path / "data") as node, tabs_of(browser) as context:
        relay = Relay(node.port)
        relay.open()
        page = tab(context, relay.url, f"via={via}")
        live(page)
        post(node, "before")
        assert got(page, 1) == ["before"]
        relay.cut()
        wait_for(page, "states.at(-1) === 'recovering'")
        post(node, "missed")
        relay.open()
        page.evaluate("dispatchEvent(new Event('online'))")
        assert got(page, 2) == ["before", "missed"]
        assert changes(page) == ["live", "recovering", "recovered"]
        relay.cut()


def family(mark: str) -> list[int]:
    """The browser that was started with a mark, and all processes below it."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                status = (folder / "status").read_text()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            pid = int(folder.name)
            parents[pid] = int(status.partition("PPid:")[2].split()[0])
            if mark.encode() in command and b"chromium" in command.partition(b"\0")[0]:
                found.add(pid)
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return sorted(found)


def another(browser: Browser, flag: str) -> Browser:
    """Another browser beside this one."""
    return browser.browser_type.launch(executable_path=CHROMIUM, args=[*FLAGS, flag], headless=True)


@pytest.mark.parametrize("is_node_restarted", [False, True])
def test_a_browser_that_slept_gets_everything_once(
    tmp_path: Path, browser: Browser, is_node_restarted: bool
) -> None:
    mark = f"--mark={uuid4().hex}"
    ways = ["sharedworker", "broadcast", "eventsource", "websocket"]
    with (
        Living(tmp_path / "data", "http.heartbeat_s=1") as node,
        contextlib.closing(another(browser, mark)) as sleeper,
        tabs_of(sleeper) as context,
    ):
        pages = [tab(context, node.url, f"via={via}") for via in ways]
        for page in pages:
            live(page)
        post(node, "before")
        for page in pages:
            assert got(page, 1) == ["before"]
        sleeping = family(mark)
        assert sleeping
        for pid in sleeping:
            os.kill(pid, signal.SIGSTOP)
        try:
            post(node, "missed")
            if is_node_restarted:
                node.kill()
                node.start()
                post(node, "after a restart")
        finally:
            for pid in reversed(sleeping):
                os.kill(pid, signal.SIGCONT)
        expected = ["before", "missed", *(["after a restart"] if is_node_restarted else [])]
        for page in pages:
            assert got(page, len(expected)) == expected
            live(page)
            assert "lost" not in page.evaluate("states")


def test_a_token_is_exchanged_for_a_ticket_and_tabs_with_another_token_share_nothing(
    tmp_path: Path, browser: Browser
) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token"})
    rules = "ann subscribe what/chat,bob subscribe what/else"
    settings = (f"security.tokens_file={tokens}", f"security.allow={rules}")
    with Living(tmp_path / "data", *settings) as node, tabs_of(browser) as context:
        ann = tab(context, node.url, "token=a-token")
        live(ann)
        bob = tab(context, node.url, "token=b-token")
        wait_for(bob, "states.at(-1) === 'lost'")
        assert "bob may not read what/chat" in bob.evaluate("reasons.at(-1)")
        nobody = tab(context, node.url, "token=no-token")
        wait_for(nobody, "states.at(-1) === 'lost'")
        assert "/ticket answered HTTP 403" in nobody.evaluate("reasons.at(-1)")
        assert changes(ann) == ["live"]
