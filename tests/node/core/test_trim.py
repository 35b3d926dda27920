"""Retention never removes what the core has not dispatched yet."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from reknit.batch import Batch
from reknit.config import Config, RetentionSettings
from reknit.frame import Buffer
from reknit.node.core.core import Core
from reknit.outcome import Outcome
from reknit.protocol.machine import Peer
from reknit.store.log.retention import Retention
from reknit.store.memory import SimJournal
from reknit.wire.codec import Frames
from reknit.wire.messages import DispositionRow, Settle, Start, Subscribe

SOURCE = b"s" * 16


class Shell:
    """Commits, but reports it only when the test says so: as a thread does."""

    def __init__(self) -> None:
        config = Config(retention=RetentionSettings(count_max=10))
        self.journal = SimJournal(Retention(count_max=10), segment_bytes=1 << 10)
        self.core = Core("n", "e", self.journal, config, self, Random(1), zero_us=0, now_us=lambda: 0)
        self.core.joined(1, 0.0)
        self.committed: list[tuple[int, int]] = []
        self.sent: list[bytes] = []
        self.wanted = (0, False)
        self.is_slow = False

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        self.sent += map(bytes, buffers)

    def commit(self, number: int, sync: bool) -> None:
        self.wanted = (number, sync)
        if not self.is_slow:
            self.committed.append((number, self.journal.commit(sync)))

    def report(self) -> None:
        """The commits ended."""
        while self.committed:
            self.core.durable(*self.committed.pop(0), 1.0)
            self.core.run(1.0)

    def publish(self, first: int, count: int) -> None:
        batch = Batch.build(SOURCE, "a", first, [b"x" * 100] * count, time_us=1)
        self.core.receive(Frames(bytes(batch.data), [batch.head]), 1, 0.0)
        self.core.run(0.0)


def test_events_that_were_committed_meanwhile_stay_until_they_are_dispatched() -> None:
    shell = Shell()
    for first in range(1, 1001, 20):
        shell.publish(first, 20)
    shell.core.trim(0.0)
    for number, end in shell.committed:
        shell.core.durable(number, end, 1.0)
    shell.core.run(1.0)
    assert shell.sent, "the publisher is acknowledged"
    shell.core.trim(2.0)
    assert shell.journal.start > 0, "retention applies to what was dispatched"
    assert shell.journal.status().events < 1000


def test_events_stay_until_the_outcomes_that_they_wait_for_are_durable() -> None:
    shell = Shell()
    shell.core.joined(2, 0.0)
    shell.core.receive(Subscribe(1, "a", "audit", Start(), 1 << 20), 2, 0.0)
    shell.core.run(0.0)
    shell.report()
    for first in range(1, 1001, 20):
        shell.publish(first, 20)
    shell.report()
    shell.is_slow = True
    shell.core.receive(Settle(1, 1, [DispositionRow("a", SOURCE, 1, 1001, int(Outcome.ACCEPTED))]), 2, 0.0)
    shell.core.run(0.0)
    shell.core.trim(1.0)
    shell.core.run(1.0)
    assert shell.journal.start == 0, "after a crash all of them would be owed again"
    shell.is_slow = False
    shell.commit(*shell.wanted)
    shell.report()
    assert shell.journal.start > 0
