"""One thing that people look for: an event, its way, the strips of its source, a connection, a line, live figures."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import reknit
from reknit.config import Config, HttpSettings, JournalSettings, LinkSettings, NodeSettings
from reknit.outcome import Code, FinalOutcome
from reknit.topic import Pattern
from tests.client.node_thread import serving
from tests.console.pages import run
from tests.gateway.http.http_client import Web, web

pytestmark = pytest.mark.real
JSON = "application/json"


@pytest.fixture(scope="module")
def node() -> Iterator[Web]:
    with web() as one:
        run(_history(one.node.urls[0]))
        yield one


async def _history(url: str) -> None:
    async with reknit.connect(url) as session, session.subscribe("plant/**", name="audit") as audit:
        for number in range(5):
            headers = {"trace": f"t{number}", "message-id": f"m{number}"}
            await session.publish("plant/a", f'{{"n": {number}}}', headers=headers, key=f"k{number % 2}")
        await session.publish_many("plant/b", [b"\xff\x00", b"needle", b"hay"])
        first = await anext(aiter(audit))
        await first.release()
        for _ in range(8):
            event = await anext(aiter(audit))
            is_bad = event.payload == b"needle"
            await (event.reject(Code.OUT_OF_RANGE, "too sharp") if is_bad else event.accept())


def get(node: Web, path: str, **parameters: Any) -> Any:
    query = f"?{urlencode(parameters)}" if parameters else ""
    answer = node.request(f"/api/v1/{path}{query}", "GET", b"")
    assert answer.code == 200, answer.body
    return json.loads(answer.body)


def order(node: Web, path: str, **body: Any) -> Any:
    answer = node.request(f"/api/v1/{path}", "POST", json.dumps(body).encode(), Content_Type=JSON)
    assert answer.code == 200, answer.body
    return json.loads(answer.body)


def found(node: Web, **wanted: Any) -> list[str]:
    body = get(node, "search", **wanted)
    assert body["next"] is None
    return [f"{row['topic']}:{row['id'].rpartition(':')[2]}" for row in body["found"]]


# -- search


@pytest.mark.parametrize(
    ("wanted", "events"),
    [
        ({"text": "needle"}, ["plant/b:2"]),
        ({"text": '"n": 3'}, ["plant/a:4"]),
        ({"topic": "plant/a", "key": "k1"}, ["plant/a:4", "plant/a:2"]),
        ({"header": "trace=t2"}, ["plant/a:3"]),
        ({"topic": "plant/b", "header": "trace"}, []),
        ({"id": "m4"}, ["plant/a:5"]),
        ({"topic": "plant/b", "since_us": 1}, ["plant/b:3", "plant/b:2", "plant/b:1"]),
        ({"topic": "plant/b", "until_us": 1}, []),
    ],
)
def test_events_are_found_by_what_is_in_them(node: Web, wanted: dict[str, Any], events: list[str]) -> None:
    assert found(node, **wanted) == events


def test_a_search_continues_where_it_stopped(node: Web) -> None:
    rows, place = [], ""
    while place is not None:
        body = get(node, "search", topic="plant/**", since_us=1, limit=3, place=place)
        rows += [row["id"] for row in body["found"]]
        assert len(body["found"]) <= 3
        place = body["next"]
    assert len(rows) == len(set(rows)) == 8


def test_a_search_for_nothing_says_what_is_missing(node: Web) -> None:
    answer = node.request("/api/v1/search", "GET", b"")
    assert (answer.code, b"say what to look for" in answer.body) == (400, True)


# -- the way of an event


def test_the_way_of_an_event_has_its_retries_and_its_end(node: Web) -> None:
    [first] = get(node, "search", text='"n": 0')["found"]
    [told] = get(node, "trail", topic="plant/a", id=first["id"])["nodes"]
    assert [fact["what"] for fact in told["facts"] if fact["what"] != "kept"] == [
        "published",
        "released",
        "accepted",
    ]
    assert (told["node"], told["is_held"], told["next"]) == ("test", True, None)
    [sharp] = get(node, "search", text="needle")["found"]
    facts = get(node, "trail", topic="plant/b", id=sharp["id"])["nodes"][0]["facts"]
    ended = facts[-1]
    assert (ended["what"], ended["who"], ended["text"], ended["code"]) == (
        "dead-lettered", "audit", "too sharp", "OUT_OF_RANGE",
    )  # fmt: skip


def test_an_event_is_followed_over_links() -> None:
    def settings(name: str, *links: str) -> Config:
        names = NodeSettings(name=name, listen=("tcp://127.0.0.1:0",))
        return Config(
            node=names,
            journal=JournalSettings(kind="memory"),
            http=HttpSettings(listen="127.0.0.1:0"),
            links=LinkSettings(to=links),
        )

    async def flow(here: str, there: str) -> None:
        async with (
            reknit.connect(there) as far,
            far.subscribe("plant/**", name="far") as events,
            reknit.connect(here) as session,
        ):
            while not (await session.ask("links"))[0]["subscriptions"]:
                pass  # the subscription is not known here yet
            await session.publish("plant/a", "1")
            await (await anext(aiter(events))).accept()

    with serving(settings("here")) as here, serving(settings("there", here.urls[0])) as there:
        run(flow(here.urls[0], there.urls[0]))
        near = Web(here)
        [event] = get(near, "search", text="1")["found"]
        while True:
            nodes = get(near, "trail", topic="plant/a", id=event["id"])["nodes"]
            if nodes[0]["forwards"][0]["is_stored"] and nodes[1]["facts"][-1]["what"] == "accepted":
                break
        assert [one["node"] for one in nodes] == ["here", "there"]
        assert nodes[1]["origin"] == "here"
        assert nodes[1]["forwards"] == []


# -- sources


def test_sources_are_strips_down_to_a_single_event(node: Web) -> None:
    [row] = get(node, "sources", topic="plant/a")["rows"]
    assert (row["published"], row["last"], row["cells"]) == (5, 5, [["held", 1, 6]])
    ledger = node.node.journal.ledger
    series = ("plant/a", bytes.fromhex(row["source"]))
    ledger.open("unlucky", Pattern("plant/**"), {}, 0).settle(series, 2, 4, FinalOutcome.LOST)
    try:
        [row] = get(node, "sources", topic="plant/a", source=row["source"], start=2, stop=6)["rows"]
        assert row["cells"] == [["lost", 2, 4], ["held", 4, 6]]
        assert row["losers"] == ["unlucky"]
    finally:
        del ledger.accounts["unlucky"]


# -- connections, settings, log


def test_a_connection_is_listed_and_ended(node: Web) -> None:
    with node.stream("/sse?topic=attic/**") as tunnel:
        tunnel.until(b"opened")
        [row] = get(node, "connections", name="attic")["rows"]
        assert (row["door"], row["holds"], row["state"]) == ("http", "attic/**", "live")
        order(node, "connections/end", connection=row["id"])
        assert b"an operator ended this connection" in tunnel.rest()
    answer = node.request(
        "/api/v1/connections/end", "POST", json.dumps({"connection": row["id"]}).encode(), Content_Type=JSON
    )
    assert (answer.code, b"it has ended" in answer.body) == (404, True)


def test_settings_say_where_they_come_from(node: Web) -> None:
    rows = {row["name"]: row for row in get(node, "config")}
    assert rows["node.name"]["value"] == '"test"'
    assert {"origin", "doc", "default"} <= rows["node.name"].keys()


def test_the_newest_lines_of_the_log_are_shown(node: Web) -> None:
    logging.getLogger("reknit.node").error("the disk is %s", "full")
    assert [(row["level"], row["text"]) for row in get(node, "log", limit=1)] == [
        ("error", "the disk is full")
    ]


def test_an_event_is_published(node: Web) -> None:
    made = [order(node, "publish", topic="desk", text=text, headers={"n": text})["id"] for text in "ab"]
    assert made[0].partition(":")[0] == made[1].partition(":")[0]
    shown = get(node, "event", topic="desk", id=made[1])["event"]
    assert (shown["payload"]["text"], shown["headers"]) == ("b", {"n": "b"})


# -- figures that come by themselves


def test_figures_come_when_they_change(node: Web) -> None:
    asked = quote("topics?topic=fresh/**")
    with node.stream(f"/api/v1/live?ask={asked}&ask=nonsense") as page:
        text = page.until(b'"topic":"live/1"')
        assert b"event: opened" in text
        assert b'"topic":"live/0"' in text
        assert rb'"payload":"{\"count\":0,\"rows\":[]}"' in text
        page.until(rb"{\"problem\":{\"status\":404")
        order(node, "publish", topic="fresh/a", text="1")
        page.until(rb"\"topic\":\"fresh/a\"")
    with node.stream(f"/api/v1/live?ask={asked}&from=now") as page:
        page.until(b'"state":"recovered"')
    assert node.request("/api/v1/live", "GET", b"").code == 400
