"""What all parts of the dispatcher share: queues, the ledger, the time, and what is to be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from reknit.ledger import Ledger
from reknit.protocol.dispatch.inputs import Key
from reknit.protocol.dispatch.pauses import Pauses
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.rules import Rules
from reknit.protocol.effects import AppendRecord, DeadLetter, Deliver, Redeliver, Scan, Send, Withhold
from reknit.protocol.machine import Peer
from reknit.records import Record
from reknit.topic_index import TopicIndex
from reknit.wire.messages import Message

Effect = AppendRecord | DeadLetter | Deliver | Redeliver | Scan | Send | Withhold


class Desk:
    """Shared state, and the few things that every part does with it."""

    def __init__(
        self,
        ledger: Ledger,
        end: int,
        next_number: Callable[[], int],
        rng: Random,
        rules: Rules,
        pauses: Pauses,
        zero_us: int,
    ) -> None:
        self.ledger = ledger
        self.rules = rules
        self.pauses = pauses
        self.rng = rng
        self.queues: dict[Key, Queue] = {}
        self.by_name: dict[str, Queue] = {}
        self.index: TopicIndex[Queue] = TopicIndex()
        self.backing_off: dict[Queue, None] = {}
        """The queues that something is due for: an attempt, or the end of a lease."""
        self.end = end
        """The journal's durable end."""
        self.kept = 0
        """The number up to which everything is durable."""
        self.now = 0.0
        self.time_us = zero_us
        self.floors: dict[str, int] = {}
        self.recorded: dict[str, int] = {}
        """By durable subscriber, the number of the last record of its outcomes: it outlives connections."""
        self.effects: list[Effect] = []
        self._zero_us = zero_us
        """The time of day, in microseconds since 1970, at which `now` was 0: so the time of day never jumps."""
        self._next_number = next_number
        self._promises: deque[tuple[int, Send]] = deque()
        """What is said when a record is durable."""

    def at(self, now: float) -> None:
        """It is now."""
        self.now = now
        self.time_us = self._zero_us + int(now * 1e6)

    def say(self, peer: Peer, message: Message) -> None:
        self.effects.append(Send(peer, message))

    def append(self, record: Record) -> int:
        """Keep a record; gives its number."""
        number = self._next_number()
        self.effects.append(AppendRecord(number, record))
        return number

    def promise(self, number: int, peer: Peer, message: Message) -> None:
        """Say this when everything up to a number is durable."""
        self._promises.append((number, Send(peer, message)))

    def confirm(self, number: int) -> None:
        """Everything up to this number is durable."""
        self.kept = max(self.kept, number)
        while self._promises and self._promises[0][0] <= number:
            self.effects.append(self._promises.popleft()[1])
