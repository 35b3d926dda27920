"""The state that all parts of the dispatcher share: queues, ledger, rules, the time, and the effects to perform.

The parts read its fields and change them only through the methods below.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from random import Random

import msgspec

from reknit.ledger import Account, Ledger
from reknit.protocol.dispatch.pauses import Pauses
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.effects import (
    AppendRecord,
    DeadLetter,
    DeliverRuns,
    Fail,
    Redeliver,
    Scan,
    Send,
    Withhold,
)
from reknit.protocol.machine import Peer
from reknit.protocol.queues.queue import Queue
from reknit.protocol.queues.registry import QueueRegistry
from reknit.records import OfAccount, Record, account_after
from reknit.wire.messages import Message

Effect = AppendRecord | DeadLetter | DeliverRuns | Fail | Redeliver | Scan | Send | Withhold


class DispatchState:
    """The shared state of one dispatcher."""

    def __init__(
        self,
        ledger: Ledger,
        end: int,
        next_number: Callable[[], int],
        rng: Random,
        rules: DispatchRules,
        pauses: Pauses,
        zero_us: int,
        deferred: Callable[[], Iterable[Record]],
    ) -> None:
        self.ledger = ledger
        self.rules = rules
        self.pauses = pauses
        self.rng = rng
        self.queues = QueueRegistry()
        self.end = end
        """The journal's durable end."""
        self.durable_number = 0
        """The number up to which every append is durable."""
        self.now = 0.0
        self.time_us = zero_us
        """The time of day at `now`, in microseconds since 1970."""
        self._zero_us = zero_us
        """The time of day at which `now` was 0: so the time of day never jumps."""
        self.released = self.redelivered = 0
        """How many events subscribers released, and how many were delivered again, since the node started."""
        self.effects: list[Effect] = []
        """To be performed, in order."""
        self._next_number = next_number
        self._deferred = deferred
        """Records that wait for room in the journal: the ledger does not have them yet."""
        self._promises: deque[tuple[int, Send]] = deque()
        """Messages that are sent when a record is durable."""

    def at(self, now: float) -> None:
        """Set the time to `now`."""
        self.now = now
        self.time_us = self._zero_us + int(now * 1e6)

    def journal_ends_at(self, end: int) -> None:
        """The journal's durable end moved."""
        self.end = end

    def account(self, name: str) -> Account | None:
        """A durable subscriber's account, with the outcomes and attempts that are not in the ledger yet.

        They wait for room in the journal, or to be performed. An event that has ended must not end again meanwhile.
        """
        account = self.ledger.accounts.get(name)
        if account is None:
            return None
        emitted = (effect.record for effect in self.effects if isinstance(effect, AppendRecord))
        coming = [
            record
            for record in chain(self._deferred(), emitted)
            if isinstance(record, OfAccount) and record.name == name
        ]
        return account_after(account, coming) if coming else account

    def order(self, queue: Queue, topic: str) -> str:
        """What a queue keeps in order on a topic: `none`, `source` or `key`."""
        if queue.order:
            return queue.order
        return self.rules.of(topic).order if self.rules.has_order and queue.is_durable else "none"

    # -- effects

    def emit(self, effect: Effect) -> None:
        """Emit an effect."""
        self.effects.append(effect)

    def emit_dead_letter(self, letter: DeadLetter) -> None:
        """The same for dead letters: one that continues the last one extends it."""
        last = self.effects[-1] if self.effects else None
        if isinstance(last, DeadLetter) and _continues(last, letter):
            self.effects[-1] = msgspec.structs.replace(last, stop=letter.stop)
        else:
            self.effects.append(letter)

    def send(self, peer: Peer, message: Message) -> None:
        self.effects.append(Send(peer, message))

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects = self.effects.copy()
        self.effects.clear()  # the list stays the same: the dispatcher has it, too
        return effects

    def put_back_effects(self, effects: list[Effect]) -> None:
        """Put back effects that were taken, after those that were emitted since."""
        self.effects += effects

    # -- records, and messages that wait for them

    def append(self, record: Record) -> int:
        """Store a record in the journal; returns its number."""
        number = self._next_number()
        self.effects.append(AppendRecord(number, record))
        return number

    def send_when_durable(self, number: int, peer: Peer, message: Message) -> None:
        """Send a message when everything up to a number is durable."""
        self._promises.append((number, Send(peer, message)))

    def made_durable(self, number: int) -> None:
        """Everything up to this number is durable."""
        self.durable_number = max(self.durable_number, number)
        while self._promises and self._promises[0][0] <= number:
            self.effects.append(self._promises.popleft()[1])


def _continues(last: DeadLetter, letter: DeadLetter) -> bool:
    """Whether a dead letter is about the events after the last one, and says the same."""
    return (
        last.stop == letter.start
        and msgspec.structs.replace(letter, start=last.start, stop=last.stop) == last
    )
