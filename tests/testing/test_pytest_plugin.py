"""The fixtures for tests of one's own programs."""

from __future__ import annotations

import pytest

import reknit
from reknit.testing.pytest_plugin import RunningNode, reknit_fabric, reknit_node, reknit_session, wait_until

pytestmark = pytest.mark.real

__all__ = ["reknit_fabric", "reknit_node", "reknit_session"]


def test_a_session_publishes_and_subscribes(reknit_session: reknit.SyncSession) -> None:
    with reknit_session.subscribe("orders/**") as events:
        reknit_session.publish("orders/new", b"7")
        assert next(events).payload == b"7"


def test_a_node_says_what_settled_and_what_died(reknit_node: RunningNode) -> None:
    with reknit_node.session() as session:
        assert session.status()["journal"]["events"] == 0, "every test has a node of its own"
        with session.subscribe("orders/**", name="audit") as events:
            session.publish_many("orders/new", [b"good", b"bad"])
            next(events).accept()
            next(events).reject("DATA_LOSS", "torn")
    [row] = reknit_node.wait_settled("orders/**")
    assert (row["accepted"], row["dead_lettered"]) == (1, 1)
    assert [(one.payload, one.text) for one in reknit_node.dead_letters()] == [(b"bad", "torn")]


def test_events_cross_a_fabric(reknit_fabric: list[RunningNode]) -> None:
    with (
        reknit_fabric[0].session() as first,
        reknit_fabric[2].session() as last,
        last.subscribe("orders/**", name="audit", history=True) as events,
    ):
        first.publish("orders/new", b"7")
        assert next(events).payload == b"7"


def test_waiting_for_what_never_comes_fails() -> None:
    with pytest.raises(AssertionError, match=r"nothing was seen within 0\.05 s"):
        wait_until(lambda: False, patience_s=0.05)
