"""`/api/v1/…`: figures and orders over HTTP, which each person gets as far as the rules allow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.console import operator_sessions
from reknit.console.resources import RESOURCES
from reknit.ledger import Ledger
from reknit.outcome import Code, FinalOutcome
from tests.gateway.http.http_client import Web, config, web
from tests.guarded_files import GuardedFiles

pytestmark = pytest.mark.real
JSON, TRAIL = "application/json", "reknit/audit"


@pytest.fixture
def node() -> Iterator[Web]:
    """A node where `audit` accepted eight of ten events and rejected two, and `late` was never there again."""
    with web() as one:
        asyncio.run(_history(one.node.urls[0]))
        yield one


async def _history(url: str) -> None:
    async with (
        reknit.connect(url) as session,
        session.subscribe("plant/**", name="late"),
        session.subscribe("plant/**", name="audit") as audit,
    ):
        await session.publish_many("plant/a", [f'{{"n": {n}}}' for n in range(7)])
        await session.publish_many("plant/b", [b"\xff", b"1", b"2"])
        for _ in range(10):
            event = await anext(aiter(audit))
            is_odd = event.payload in (b"1", b"2")
            await (event.reject(Code.INVALID_ARGUMENT, "odd") if is_odd else event.accept())


def get(node: Web, path: str, **headers: str) -> Any:
    answer = node.request(f"/api/v1/{path}", "GET", b"", **headers)
    assert answer.code == 200, answer.body
    assert answer.headers["cache-control"] == "no-store"
    return json.loads(answer.body)


def problem(
    node: Web, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, str, str]:
    answer = node.request(f"/api/v1/{path}", method, body, **headers)
    told = json.loads(answer.body)
    return answer.code, told["code"], told["error"]


def test_the_ledger_says_what_became_of_every_event(node: Web) -> None:
    body = get(node, "ledger?subscriber=audit")
    totals = {"published": 20, "accepted": 8, "dead_lettered": 2, "lost": 0, "in_flight": 10, "unbalanced": 0}
    assert body["totals"].items() >= totals.items()
    assert body["sentence"] == "Every event is accounted for"
    assert [(row["topic"], row["accepted"], row["dead_lettered"]) for row in body["rows"]] == [
        ("plant/b", 1, 2),
        ("plant/a", 7, 0),
    ], "the row with dead letters comes first"
    assert [row["subscriber"] for row in body["subscribers"]] == ["audit", "late"]
    late = body["subscribers"][1]
    assert late["in_flight"] == 10
    assert late["lag_s"] > 0


def test_lists_come_in_pages(node: Web) -> None:
    first, second = (
        get(node, "topics?limit=1&topic=plant/**"),
        get(node, "topics?limit=1&offset=1&topic=plant/**"),
    )
    assert (first["count"], second["count"]) == (2, 2)
    assert [row["topic"] for row in first["rows"] + second["rows"]] == ["plant/a", "plant/b"]
    most = get(node, "topics?order=events&limit=1&topic=plant/**")["rows"]
    assert [(row["topic"], row["events"]) for row in most] == [("plant/a", 7)]
    late = get(node, "subscribers?name=late")["rows"][0]
    assert (late["state"], late["lag_s"] > 0) == ("away", True)


def test_an_event_is_found_with_what_became_of_it(node: Web) -> None:
    source = json.loads(node.request("/api/v1/dead-letters").body)["letters"][0]["id"].partition(":")[0]
    body = get(node, f"event?topic=plant/b&id={source}:2")
    assert body["event"]["payload"] == {"bytes": 1, "text": "1"}
    assert body["outcomes"] == [
        {"subscriber": "audit", "outcome": "dead_lettered"},
        {"subscriber": "late", "outcome": "in_flight"},
    ]
    assert get(node, f"event?topic=plant/b&id={source}:1")["event"]["payload"] == {
        "bytes": 1,
        "base64": "/w==",
    }
    assert get(node, f"event?topic=plant/b&id={source}:99")["event"] is None


def test_losses_are_ranges_with_their_reason(node: Web) -> None:
    ledger: Ledger = node.node.journal.ledger
    [source] = {source for topic, source in ledger.published if topic == "plant/a"}
    ledger.accounts["late"].settle(("plant/a", source), 2, 5, FinalOutcome.LOST)
    body = get(node, "losses")
    assert [(row["subscriber"], row["start"], row["stop"]) for row in body["rows"]] == [("late", 2, 5)]
    assert body["is_end"]


def test_dead_letters_are_counted_redriven_and_dropped(node: Web) -> None:
    def order(what: str, **body: Any) -> Any:
        answer = node.request(
            f"/api/v1/dead-letters/{what}", "POST", json.dumps(body).encode(), Content_Type=JSON
        )
        assert answer.code == 200, answer.body
        return json.loads(answer.body)

    letter = get(node, "dead-letters")["letters"][0]
    assert (letter["code"], letter["text"], letter["payload"]["text"]) == ("INVALID_ARGUMENT", "odd", "2")
    assert order("redrive", is_dry=True)["count"] == 2
    assert order("redrive", is_dry=True, to="subscriber")["topics"] == order("redrive", is_dry=True)["topics"]
    assert order("redrive", limit=1)["count"] == 1
    assert order("drop")["count"] == 1
    body = get(node, "dead-letters")
    assert (body["waiting"], body["redriven"], body["dropped"]) == (0, 1, 1)


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("ledger?order=best", 400, "order can't be 'best': choose one of trouble"),
        ("ledger?limit=1001", 400, "limit can't be '1001': it is a number from 0 to 1000"),
        ("ledger?limit=-1", 400, "limit can't be '-1'"),
        (f"ledger?limit={'0' * 20}{'9' * 20}", 400, "limit can't be"),
        (f"ledger?limit={'0' * 5000}7", 400, "limit can't be"),
        ("ledger?limit=1&limit=2", 400, "limit is given twice"),
        ("ledger?rows=1", 400, "'rows' is not a parameter"),
        ("ledger?topic=a//b", 400, "an empty segment"),
        (f"ledger?topic={'a' * 1001}", 400, "longer than 1000 characters"),
        ("event?topic=a&id=7", 400, "invalid event id '7'"),
        ("event?id=00:7", 400, "topic"),
        ("dead-letters?code=NONSENSE", 400, "NONSENSE"),
        ("nothing", 404, "/api/v1/nothing does not exist; there are /api/v1/whoami"),
        ("dead-letters/drop", 405, "takes POST, not GET"),
    ],
)
def test_a_request_that_can_not_be_answered_says_why(node: Web, path: str, code: int, text: str) -> None:
    status, _, told = problem(node, path)
    assert (status, text in told) == (code, True), told


def test_an_order_is_not_taken_from_a_foreign_page(node: Web) -> None:
    order = ("dead-letters/drop", "POST", b"{}")
    assert problem(node, *order, Content_Type=JSON, Origin="http://evil.example")[0] == 403
    assert problem(node, *order, Content_Type="text/plain")[0] == 415
    assert problem(node, *order[:2], b'{"limit": "many"}', Content_Type=JSON)[0] == 400
    assert problem(node, *order[:2], b'{"rows": 5}', Content_Type=JSON)[0] == 400
    for number in ("-1", "9" * 30, "9" * 5_000):
        assert problem(node, *order[:2], b'{"after": %b}' % number.encode(), Content_Type=JSON)[0] == 400
    assert get(node, "dead-letters")["waiting"] == 2


def test_every_resource_is_described(node: Web) -> None:
    described = get(node, "openapi.json")["paths"]
    assert {(f"/api/v1/{one.path}", one.method.lower()) for one in RESOURCES} == {
        (path, method) for path, methods in described.items() for method in methods
    }


# -- where there are rules

ONE = f"?topic=plant/a&id={'00' * 16}:1"
QUERIES = {
    "event": ONE,
    "trail": ONE,
    "sources": "?topic=plant/a",
    "search": "?topic=plant/a&text=x",
}
BODIES = {"publish": {"topic": "plant/a"}, "connections/end": {"connection": "http/0"}}


@pytest.fixture
def files(tmp_path: Path) -> GuardedFiles:
    tokens = {"ann": "a-token", "bob": "b-token", "wat": "w-token", "root": "r-token"}
    rules = (
        "ann subscribe **",
        "bob subscribe plant/a",
        "wat watch **",
        "root admin",
        "root publish **",
        f"root subscribe {TRAIL}",
    )
    return GuardedFiles(tmp_path, tokens, *rules)


@pytest.fixture
def guarded(files: GuardedFiles) -> Iterator[Web]:
    with web(files.guard(config(), audit="auto")) as one:
        yield one


def allowed(node: Web, who: str) -> set[str]:
    """The resources that somebody may use."""
    headers = {"Authorization": f"Bearer {who}-token"} if who else {}
    found = set()
    for one in RESOURCES:
        query = QUERIES.get(one.path, "")
        body = json.dumps(BODIES.get(one.path, {"limit": 0})).encode() if one.method == "POST" else b""
        answer = node.request(f"/api/v1/{one.path}{query}", one.method, body, Content_Type=JSON, **headers)
        assert answer.code in (200, 403, 404), (one.path, answer.body)
        if answer.code != 403:
            found.add(one.path)
    return found


def test_everyone_gets_what_the_rules_allow(guarded: Web) -> None:
    figures = {"summary", "ledger", "topics", "subscribers", "losses", "queues", "pipelines", "dead-letters"}
    watched = figures | {"event", "trail", "sources", "whoami"}
    assert allowed(guarded, "") == {"whoami"}
    assert allowed(guarded, "b") == {"whoami", "event", "trail", "sources", "search"}
    assert allowed(guarded, "w") == watched
    assert allowed(guarded, "a") == watched | {"search"}
    assert allowed(guarded, "r") == {one.path for one in RESOURCES}
    assert problem(guarded, "summary", Authorization="Bearer guess")[:2] == (401, "UNAUTHENTICATED")


def test_payloads_are_hidden_from_those_who_may_only_watch(guarded: Web) -> None:
    root = {"Authorization": "Bearer r-token", "Content_Type": JSON}
    order = json.dumps({"topic": "plant/a", "text": "secret", "headers": {"who": "ann"}}).encode()
    made = json.loads(guarded.request("/api/v1/publish", "POST", order, **root).body)
    query = f"event?topic=plant/a&id={made['id']}"
    assert get(guarded, query, Authorization="Bearer a-token")["event"]["payload"]["text"] == "secret"
    seen = get(guarded, query, Authorization="Bearer w-token")
    assert (seen["event"], seen["is_hidden"]) == (None, True)
    told = problem(guarded, "search?topic=plant/a&text=sec", Authorization="Bearer w-token")
    assert told[:2] == (403, "PERMISSION_DENIED")


def test_everybody_hears_what_they_may_do(guarded: Web, node: Web) -> None:
    assert get(node, "whoami")["is_open"]
    ann = get(guarded, "whoami", Authorization="Bearer a-token")
    assert (ann["name"], ann["is_admin"], ann["may_read"], ann["publishes"]) == ("ann", False, True, [])
    watcher = get(guarded, "whoami", Authorization="Bearer w-token")
    assert (watcher["may_watch"], watcher["may_read"]) == (True, False)


def test_people_who_are_not_waiting_for_an_answer_make_room_for_others(
    guarded: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_sessions, "SESSIONS_MAX", 1)
    get(guarded, "summary", Authorization="Bearer a-token")
    with monkeypatch.context() as busy:
        busy.setattr(operator_sessions.OperatorSession, "is_idle", False)
        told = problem(guarded, "summary", Authorization="Bearer r-token")
        assert told[:2] == (429, "RESOURCE_EXHAUSTED")
    get(guarded, "summary", Authorization="Bearer r-token")
    get(guarded, "summary", Authorization="Bearer a-token")


def test_a_token_that_is_revoked_counts_no_more(guarded: Web, files: GuardedFiles) -> None:
    get(guarded, "summary", Authorization="Bearer a-token")
    files.tokens({"bob": "b-token", "root": "r-token"})
    while (status := guarded.request("/api/v1/summary", Authorization="Bearer a-token").code) in (200, 503):
        pass  # the node looks at its files now and then, and ends what is being asked at that moment
    assert status == 401


def test_orders_are_in_the_audit_trail_with_who_gave_them(guarded: Web) -> None:
    body = json.dumps({"is_dry": False}).encode()
    root = {"Authorization": "Bearer r-token", "Content_Type": JSON}
    assert guarded.request("/api/v1/dead-letters/drop", "POST", body, **root).code == 200
    rows = asyncio.run(_audited(guarded.node.urls[0]))
    assert [(row["who"], row["action"], row["door"]) for row in rows if row["kind"] == "order"] == [
        ("root", "drop_dead_letters", "http")
    ]


async def _audited(url: str) -> list[dict[str, Any]]:
    async with reknit.connect(url, token="r-token") as session, session.subscribe(TRAIL, history=True) as log:
        rows = []
        async with asyncio.timeout(150):
            async for event in log:
                rows.append(json.loads(event.payload))
                if rows[-1]["kind"] == "order":
                    return rows
    return rows
