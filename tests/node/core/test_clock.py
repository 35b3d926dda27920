"""A clock that is set: events of the new time are taken."""

from __future__ import annotations

from random import Random

from reknit.batch import Batch
from reknit.config import Config
from reknit.node.core.core import Core
from reknit.store.memory import MemoryJournal
from reknit.wire.codec import Frames
from tests.node.core.driven import DrivenNode

HOUR_US = 3_600_000_000


def test_events_are_taken_after_the_clock_was_set_forward() -> None:
    node = DrivenNode()
    time_us = [0]
    node.core = Core(
        "n", "epoch", MemoryJournal(), Config(), node, Random(1), now_us=lambda: time_us[0], zero_us=0
    )
    time_us[0] = HOUR_US
    batch = Batch.build(b"s" * 16, "plant/a", 1, [b"x"], time_us=HOUR_US)
    for peer, is_taken in ((1, False), (2, True)):
        node.core.joined(peer, 0.0)
        node.core.receive(Frames(bytes(batch.data), [batch.head]), peer, 0.0)
        node.core.run(0.0)
        assert (("plant/a", b"s" * 16) in node.core.journal.ledger.published) is is_taken
        node.core.tick(0.0)
