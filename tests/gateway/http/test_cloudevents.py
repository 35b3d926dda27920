"""CloudEvents over HTTP become events, or the answer says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.audit import AUDIT_TOPIC
from reknit.envelope.cloudevents import event_to_json
from tests.gateway.http.http_client import Answer, Web, config, web
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "00000000-0001-7000-8010-101010101a1a",
    "source": "up://vcu/10/1/8001",
    "type": "up-pub.v1",
    "priority": "CS1",
    "pformat": 3,
    "hash": "kept as it is",
    "data": {"door": [1, 2]},
}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}


def post(node: Web, body: Any, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return node.request("/cloudevents", "POST", data, **headers)


def taken(node: Web, count: int) -> list[dict[str, Any]]:
    """The first events on the topic, as CloudEvents again."""
    with (
        reknit.connect_sync(node.node.urls[0]) as session,
        session.subscribe("up/vcu/10/0/1/8001", history=True) as events,
    ):
        return [json.loads(event_to_json(next(events))) for _ in range(count)]


def test_a_cloudevent_is_kept_as_it_is_when_the_answer_comes() -> None:
    with web() as node:
        answer = post(node, EVENT)
        assert (answer.code, answer.body) == (200, b"1 stored\n")
        assert taken(node, 1) == [EVENT]


def test_a_list_of_cloudevents_is_kept_in_order() -> None:
    several = [{**EVENT, "data": {"number": number}} for number in range(5)]
    with web() as node:
        assert post(node, several, **BATCH).body == b"5 stored\n"
        assert taken(node, 5) == several


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"[]", {}),
        ({**EVENT, "type": "com.example"}, {}),
        ({**EVENT, "source": "//vcu/10/1/7"}, {}),
        ([EVENT, {}], BATCH),
        (EVENT, BATCH),
    ],
)
def test_what_is_no_cloudevent_is_refused_with_words_and_nothing_is_kept(
    body: Any, headers: dict[str, str]
) -> None:
    with web() as node:
        answer = post(node, body, **headers)
        assert (answer.code, answer.body.startswith(b"attribute ")) == (400, True)
        assert node.node.journal.status().events == 0
        assert node.request("/cloudevents").code == 400


def test_who_may_not_write_there_may_not_by_cloudevents_either(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token"})
    allow = ("ann publish up/vcu/**", "ann as //vcu/FFFFFFFF/FF/FFFF", "bob publish **")
    with web(config(tokens_file=tokens, allow=allow)) as node:
        assert post(node, EVENT).code == 403
        assert post(node, EVENT, Authorization="Bearer wrong").code == 403
        assert post(node, EVENT, Authorization="Bearer b-token").code == 403
        assert set(node.node.journal.topics()) <= {AUDIT_TOPIC}, "nothing but what the node says itself"
        assert post(node, EVENT, Authorization="Bearer a-token").code == 200
