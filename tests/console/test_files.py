"""The files of the page, and the small pages beside it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from importlib import resources

import pytest

from tests.gateway.http.http_client import Web, config, web

pytestmark = pytest.mark.real

HTML = {"Accept": "text/html"}


@pytest.fixture
def node() -> Iterator[Web]:
    with web() as one:
        yield one


def test_a_browser_gets_the_page_and_curl_a_line_of_text(node: Web) -> None:
    page = node.request("/", "GET", b"", **HTML)
    assert (page.code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert b"<script>" not in page.body
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


def test_prometheus_reads_the_metrics_beside_the_page(node: Web) -> None:
    answer = node.request("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"reknit_journal_events 0.0" in answer.body


def test_what_is_not_ours_is_listed_with_its_licence_and_hash() -> None:
    room = resources.files("reknit.console")
    listed = tomllib.loads(room.joinpath("vendored.toml").read_text())["file"]
    folder = room.joinpath("static", "vendor")
    assert sorted(one.name for one in folder.iterdir()) == sorted(row["name"] for row in listed)
    for row in listed:
        assert row["licence"] in ("MIT", "ISC", "Apache-2.0")
        assert row["version"]
        assert row["integrity"].startswith("sha512-")
        assert hashlib.sha256(folder.joinpath(row["name"]).read_bytes()).hexdigest() == row["sha256"]
