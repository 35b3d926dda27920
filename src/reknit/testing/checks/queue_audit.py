"""Watches the queues of one dispatcher from outside: who was sent an event, and what became of it there.

It is a model of its own, fed with the dispatcher's inputs and effects. It knows members, and what each of them was sent
and has neither settled nor lost; the ledger says what has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reknit.batch import Batch
from reknit.errors import Gone
from reknit.ledger import Series
from reknit.outcome import Outcome, Reason
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import (
    EndSubscription,
    EventsExpired,
    EventsGone,
    OpenSubscription,
)
from reknit.protocol.effects import DeadLetter, DeliverRuns, Redeliver, Send
from reknit.protocol.machine import PeerLeft
from reknit.protocol.queues.queue import QueueKey
from reknit.store.journal import Journal
from reknit.wire.messages import Revoked, Settle, Unsubscribe

EventAt = tuple[Series, int]
Blame = Callable[[str], None]
GIVEN_BACK = (Outcome.RELEASED, Outcome.FAILED, Outcome.MODIFIED)


class QueueAudit:
    """Says at once when an event of a queue is with two members, comes after it ended, or overtakes its key.

    And when an event is given up as deadly while a member has it.
    """

    def __init__(self, dispatch: Dispatcher, journal: Journal, blame: Blame) -> None:
        self._dispatch, self._journal, self._blame = dispatch, journal, blame
        self._queues: dict[QueueKey, str] = {}
        """The queue's account, by member."""
        self._held: dict[str, dict[EventAt, QueueKey]] = {}
        """By queue: the events that members were sent, and did not settle."""
        self._orders: dict[str, str] = {}
        """By queue: what its members say that it keeps in order."""
        self._numbers: dict[QueueKey, int] = {}
        self._keys: dict[EventAt, str] = {}

    def watch(self) -> None:
        """See everything that the dispatcher gets and does from now on."""
        dispatch, receive, tick = self._dispatch, self._dispatch.receive, self._dispatch.tick

        def received(message: Any, peer: Any, now: float) -> None:
            before = len(dispatch._state.effects)
            receive(message, peer, now)
            self._heard(message, peer)
            self._look_at(before)

        def ticked(now: float) -> None:
            before = len(dispatch._state.effects)
            tick(now)
            self._look_at(before)

        dispatch.receive, dispatch.tick = received, ticked  # type: ignore[method-assign]

    # -- what members say

    def _heard(self, message: Any, peer: Any) -> None:
        match message:
            case OpenSubscription(request=request) if request.queue:
                if (peer, request.sub) not in self._queues:
                    self._queues[peer, request.sub] = request.account
                    self._orders[request.account] = request.order
            case Settle() if (peer, message.sub) in self._queues:
                self._settled(message, (peer, message.sub))
            case PeerLeft():
                for key in [key for key in self._queues if key[0] == peer]:
                    self._gone(key)
            case Unsubscribe(sub=sub) | EndSubscription(sub=sub):
                self._gone((peer, sub))
            case EventsGone(key=key) | EventsExpired(key=key) if key in self._queues:
                self._dropped(key, (message.topic, message.source), message.start, message.stop)

    def _settled(self, message: Settle, key: QueueKey) -> None:
        if message.number <= self._numbers.get(key, 0):
            return
        self._numbers[key] = message.number
        for row in message.rows:
            if Outcome(row.outcome).is_final or row.outcome in GIVEN_BACK:
                self._dropped(key, (row.topic, row.source), row.start, row.stop)

    def _gone(self, key: QueueKey) -> None:
        held = self._held.get(self._queues.pop(key, ""), {})
        for event in [event for event, holder in held.items() if holder == key]:
            del held[event]
        self._numbers.pop(key, None)

    def _dropped(self, key: QueueKey, series: Series, start: int, stop: int) -> None:
        held = self._held.get(self._queues[key], {})
        for seq in range(start, stop):
            if held.get((series, seq)) == key:
                del held[series, seq]

    # -- what the dispatcher does

    def _look_at(self, start: int) -> None:
        for effect in self._dispatch._state.effects[start:]:
            match effect:
                case DeliverRuns(peer=peer, sub=sub, pieces=pieces) if (peer, sub) in self._queues:
                    for piece in pieces:
                        for entry in piece.run.entries[piece.low : piece.high]:
                            head = entry.head
                            self._sent((peer, sub), (head.topic, head.source), head.first, head.stop)
                case Redeliver(peer=peer, sub=sub) if (peer, sub) in self._queues:
                    series = (effect.topic, effect.source)
                    self._sent((peer, sub), series, effect.start, effect.stop)
                case DeadLetter(reason=Reason.CRASHED, subscriber=name) if name in self._held:
                    self._died((effect.topic, effect.source), effect.start, effect.stop, name)
                case Send(peer=peer, message=Revoked() as taken) if (peer, taken.sub) in self._queues:
                    series = (taken.topic, taken.source)
                    self._dropped((peer, taken.sub), series, taken.start, taken.stop)

    def _died(self, series: Series, start: int, stop: int, name: str) -> None:
        for seq in range(start, stop):
            if (holder := self._held[name].get((series, seq))) is not None:
                self._blame(f"{name} gave up {series[0]} {seq}, of which a member died, and {holder} has it")

    def _sent(self, key: QueueKey, series: Series, start: int, stop: int) -> None:
        name = self._queues[key]
        held = self._held.setdefault(name, {})
        account = self._dispatch._state.account(name)
        assert account is not None, "a queue has an account"
        ended = account.ended(series)
        for seq in range(start, stop):
            for problem in self._problems(name, key, held, (series, seq), ended):
                self._blame(f"{name} sent {series[0]} {series[1].hex()} {seq} to {key}, {problem}")
            held[series, seq] = key

    def _problems(
        self, name: str, key: QueueKey, held: dict[EventAt, QueueKey], event: EventAt, ended: Any
    ) -> Iterator[str]:
        series, seq = event
        if event in held:
            yield f"and {held[event]} has it"
        if seq in ended:
            yield "and it has ended"
        order = self._orders[name] or self._dispatch._state.rules.of(series[0]).order
        if order == "none":
            return
        lane = self._lane(event, order)
        for other, holder in held.items():
            is_held = holder != key and other[0][0] == series[0] and not self._is_removed(other)
            if is_held and self._lane(other, order) == lane:
                yield f"and {holder} has {other[1]} of the same order ({lane!r})"
        account = self._dispatch._state.account(name)
        since = account.since.get(series, 1) if account is not None else 1
        published = self._journal.ledger.published[series]
        for before in [one for low, high in published.overlap(since, seq) for one in range(low, high)]:
            if (
                before not in ended
                and (series, before) not in held
                and self._lane((series, before), order) == lane
            ):
                yield f"before {before} of the same order ({lane!r})"

    def _is_removed(self, event: EventAt) -> bool:
        """Whether retention removed an event that a member has: it is lost, and holds up nothing."""
        series, seq = event
        return not list(self._journal.find(*series, seq, seq + 1))

    def _lane(self, event: EventAt, order: str) -> str:
        """The key of an event, or its source: what has to stay in order."""
        series, seq = event
        if event not in self._keys:
            for entry in self._journal.find(*series, seq, seq + 1):
                try:
                    batch = Batch.parse(self._journal.fetch(entry))
                except Gone:
                    continue
                keys = batch.columns().get("key")
                for place in range(batch.count):
                    self._keys[series, batch.first + place] = "" if keys is None else str(keys[place])
        key = self._keys.get(event, "")
        return f"key {key}" if order == "key" and key else f"source {series[1].hex()}"
