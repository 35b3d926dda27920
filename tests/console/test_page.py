"""The page: its files, and every view in a real browser, through a kill -9 of the node."""

from __future__ import annotations

import asyncio
import hashlib
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reknit
from reknit.outcome import Code
from tests.gateway.http.http_client import Web, config, web
from tests.gateway.http.node_process import Living
from tests.guarded_files import GuardedFiles
from tests.real.browsers import browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.real

HTML = {"Accept": "text/html"}
WAIT_MS = 150_000
OTHERS = (
    ("Subscribers", "Subscribers"),
    ("Losses", "Losses"),
    ("Fabric", "Fabric"),
    ("Node", "test"),
    ("Event", "One event"),
)
"""The other views, by their links, and their headings."""


@pytest.fixture
def node() -> Iterator[Web]:
    with web() as one:
        yield one


# -- its files


def test_a_browser_gets_the_page_and_curl_a_line_of_text(node: Web) -> None:
    page = node.request("/", "GET", b"", **HTML)
    assert (page.code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert node.request("/").body.startswith(b"reknit: ")


def test_a_file_that_the_browser_has_is_not_sent_again(node: Web) -> None:
    first = node.request("/console/main.js")
    again = node.request("/console/main.js", If_None_Match=first.headers["etag"])
    assert (first.code, again.code, again.body) == (200, 304, b"")


@pytest.mark.parametrize(
    "path", ["/console/../api.py", "/console/%2e%2e/api.py", "/console/", "/console/vendor"]
)
def test_there_is_nothing_but_the_files_of_the_page(node: Web, path: str) -> None:
    assert node.request(path).code == 404


def test_the_console_can_be_turned_off() -> None:
    with web(config(console=False)) as node:
        assert node.request("/", "GET", b"", **HTML).body.startswith(b"reknit: ")
        assert node.request("/api/v1/summary").code == 404


def test_a_node_says_whether_it_is_alive_and_ready(node: Web) -> None:
    assert (node.request("/healthz").code, node.request("/readyz").code) == (200, 200)
    node.node.core.intake.stopped = "a sync failed"
    answer = node.request("/readyz")
    assert (answer.code, answer.body) == (503, b"a sync failed\n")
    assert node.request("/healthz").code == 200


def test_what_is_not_ours_is_listed_with_its_licence_and_hash() -> None:
    room = resources.files("reknit.console")
    listed = tomllib.loads(room.joinpath("vendored.toml").read_text())["file"]
    folder = room.joinpath("static", "vendor")
    scripts = sorted(one.name for one in folder.iterdir() if one.name.endswith(".js"))
    assert scripts == sorted(row["name"] for row in listed)
    for row in listed:
        assert row["licence"]
        assert hashlib.sha256(folder.joinpath(row["name"]).read_bytes()).hexdigest() == row["sha256"]


# -- in a browser


async def _history(url: str) -> None:
    async with reknit.connect(url) as session, session.subscribe("plant/**", name="audit") as audit:
        await session.publish_many("plant/line1/temp", [b"21.5", b"22.0", b"99"])
        for _ in range(3):
            event = await anext(aiter(audit))
            await (event.reject(Code.OUT_OF_RANGE, "too hot") if event.payload == b"99" else event.accept())


@contextmanager
def opened(url: str, view: str = "") -> Iterator[Page]:
    """The console in a browser. Fails if the page logs an error or asks for anything elsewhere."""
    with browser() as engine:
        page = engine.new_page()
        page.set_default_timeout(WAIT_MS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: errors.extend([request.url][request.url.startswith(url) :]))
        page.goto(f"{url}/#/{view}")
        yield page
        assert errors == []


def heading(page: Page, text: str) -> None:
    page.get_by_role("heading", name=text, exact=True).wait_for()


def test_every_view_shows_the_same_node(node: Web) -> None:
    asyncio.run(_history(node.node.urls[0]))
    with opened(node.url) as page:
        heading(page, "Every event is accounted for")
        page.get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="plant/line1/temp").click()
        heading(page, "plant/line1/temp")
        page.get_by_text("live", exact=True).wait_for()
        node.post("/plant/line1/temp", '{"c": 23}')
        page.get_by_text('"c": 23').wait_for()
        page.get_by_role("link", name=":1", exact=False).click()
        page.get_by_role("cell", name="in flight").wait_for()
        page.go_back()
        heading(page, "plant/line1/temp")
        page.get_by_role("link", name="Dead letters").click()
        page.get_by_role("cell", name="too hot").wait_for()
        page.get_by_role("button", name="Redrive all", exact=True).click()
        page.get_by_role("button", name="Yes, redrive all").click()
        page.get_by_text("1 redriven").wait_for()
        for view, title in OTHERS:
            page.get_by_role("link", name=view, exact=True).click()
            heading(page, title)


def test_the_page_survives_the_death_of_its_node(tmp_path: Path) -> None:
    with Living(tmp_path / "data") as node, opened(node.url) as page:
        heading(page, "Nobody is owed an event yet")
        node.kill()
        page.get_by_text("the node does not answer").wait_for()
        node.start()
        page.get_by_role("alert").wait_for(state="detached")
        heading(page, "Nobody is owed an event yet")


def test_a_person_enters_a_token_where_there_are_rules(tmp_path: Path) -> None:
    files = GuardedFiles(tmp_path, {"ann": "a-token"}, "ann subscribe **")
    with web(files.guard(config())) as node, opened(node.url) as page:
        page.get_by_label("Token").fill("a-token")
        page.get_by_role("button", name="Use it").click()
        heading(page, "Nobody is owed an event yet")
        page.goto(f"{node.url}/#/letters")
        page.get_by_text("add 'ann admin' to security.allow").wait_for()
        assert "a-token" not in page.url
