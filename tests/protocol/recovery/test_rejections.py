"""Recovered events that a subscriber rejects become dead letters, if they are its own."""

from __future__ import annotations

import pytest

from reknit.outcome import Code, Reason
from reknit.protocol.publish.inputs import RefusedBatch
from reknit.protocol.recovery.cache_inputs import Dismiss
from reknit.protocol.recovery.rejections import rejections
from reknit.wire.messages import Rejection, Settle
from tests.protocol.recovery.world import TOPIC, batch


def rejection(topic: str = TOPIC, code: int = 0, reason: str = "rejected", text: str = "") -> Rejection:
    return Rejection(bytes(batch(1, 3, topic=topic).data), code, text, 2, reason)


def test_rejected_events_are_refused_with_their_code_reason_and_attempts() -> None:
    message = Settle(1, 1, [], [rejection(), rejection(code=9, reason="expired", text="too late")])
    effects = rejections(message, 5, lambda topic: True)
    assert [
        (one.peer, one.batch.first, one.refusal.code, one.refusal.reason, one.refusal.text, one.attempts)
        for one in effects
        if isinstance(one, RefusedBatch)
    ] == [
        (5, 1, Code.FAILED_PRECONDITION, Reason.REJECTED, "rejected by the subscriber", 2),
        (5, 1, Code.FAILED_PRECONDITION, Reason.EXPIRED, "too late", 2),
    ]


def test_events_of_other_topics_are_left_alone() -> None:
    message = Settle(1, 1, [], [rejection("office/light")])
    assert rejections(message, 5, lambda topic: topic == TOPIC) == []


@pytest.mark.parametrize(
    "bad",
    [Rejection(b"no batch", 0, "", 1), rejection(reason="retention"), rejection(code=99)],
    ids=["bytes", "reason", "code"],
)
def test_a_peer_that_sends_nonsense_is_dismissed_after_what_was_valid(bad: Rejection) -> None:
    effects = rejections(Settle(1, 1, [], [rejection(), bad, rejection()]), 5, lambda topic: True)
    assert [type(effect) for effect in effects] == [RefusedBatch, Dismiss]
