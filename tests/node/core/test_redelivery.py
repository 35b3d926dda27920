"""Events that can't be delivered again, because the journal lacks them: reported with the reason."""

from __future__ import annotations

import pytest

from reknit.node.core.redelivery import RedeliverySender
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import Redeliver, Send
from reknit.seqset import SeqSet
from reknit.wire.messages import Lost
from tests.protocol.dispatch.bench import SOURCE, Bench


@pytest.mark.parametrize(("damaged", "reason"), [([(2, 4)], "damaged"), ([], "retention")])
def test_the_loss_of_an_event_that_comes_back_has_its_reason(
    damaged: list[tuple[int, int]], reason: str
) -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(2, 2)
    bench.settle(1, 2, 4, Outcome.RELEASED)
    [again] = [one for one in bench.tick(60.0) if isinstance(one, Redeliver)]
    done: list[Effect] = []
    sender = RedeliverySender(
        dispatch=bench.dispatch,
        find=lambda topic, source, start, stop: [],
        lost=lambda topic, source: SeqSet.from_ranges(damaged),
        send=lambda peer, buffers: None,
        perform=lambda effect, now: done.append(effect),
    )
    sender.redeliver(again, 60.0)
    assert [one.message for one in done if isinstance(one, Send)] == [
        Lost(1, "plant/a", SOURCE, 2, 4, reason)
    ]
    assert FinalOutcome.LOST not in bench.ends("audit"), "until its record is stored"
