"""The subscribing side of one subscription: every event once and in order, its outcome sent until it is booked.

It knows how far it has got in every source, so that what comes again after a reconnection is dropped by a range
check; it tells the node what it has in hand, so that little comes again at all.
"""

from __future__ import annotations

from typing import assert_never

from reknit.batch import Batch
from reknit.delivery import RECOVERED, Delivery
from reknit.ledger import Stream
from reknit.outcome import Outcome, Reason
from reknit.protocol.machine import Peer
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.protocol.subscribe.inputs import (
    NODE,
    Booked,
    Connected,
    Delivered,
    Disconnected,
    Effect,
    Ended,
    Hand,
    Input,
    Opened,
    Report,
    SendMessage,
    State,
)
from reknit.protocol.subscribe.outcome_buffer import Said
from reknit.protocol.subscribe.recovered_in_flight import Hands, Word
from reknit.protocol.subscribe.retry_rules import Trials
from reknit.protocol.subscribe.series_seqs import StreamSeqs
from reknit.seqset import SeqSet
from reknit.wire.messages import (
    Credit,
    Held,
    Lost,
    Revoked,
    Row,
    Settled,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribed,
)

__all__ = [
    "NODE", "Booked", "Connected", "Delivered", "Disconnected", "Effect", "Ended", "Hand", "Input", "Opened",
    "Report", "SendMessage", "State", "Subscriber",
]  # fmt: skip

GIVEN_BACK = (Outcome.RELEASED, Outcome.FAILED, Outcome.MODIFIED)


class Subscriber:
    """One subscription.

    >>> subscriber = Subscriber(1, "plant/**", credit_bytes=1024)
    >>> subscriber.receive(Connected("epoch"), "node", 0.0)
    >>> [type(effect.message).__name__ for effect in subscriber.take_effects()]
    ['Subscribe']
    """

    def __init__(
        self,
        sub: int,
        pattern: str,
        name: str = "",
        start: Start | None = None,
        credit_bytes: int = 8 << 20,
        recovery: recovering.Recovery | None = None,
        is_cache: bool = False,
        zero_us: int = 0,
        takes_streams: bool = False,
    ) -> None:
        self.sub = sub
        self.pattern = pattern
        self.name = name
        self.state = State.APART
        self.lost: dict[Stream, SeqSet] = {}
        self._start = start or Start()
        self._window = credit_bytes
        self._position = -1
        self._is_overtaken = False
        """Whether something came that lies behind the position."""
        self._epoch = self._live_epoch = ""
        self._next: dict[Stream, int] = {}
        self._in_hand = StreamSeqs()
        self._again = StreamSeqs()
        """Events that the application gave back and that will be handed out once more."""
        self._revoked = StreamSeqs()
        """Those of them that were taken back from it: it may still have them, and say that they are done."""
        self._buffered = 0
        self._granted = 0
        self._owed = 0
        """Bytes that the application took and that are not granted again yet."""
        self._said = Said(sub)
        self._recovery = recovery
        self._hands = Hands(zero_us)
        self._recovered_bytes = 0
        """Recovered and not taken by the application yet: outside the credit, and bounded by the same window."""
        self._is_cache = is_cache
        self._takes_streams = takes_streams
        self._effects: list[Effect] = []

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node, or about the connection to it."""
        match message:
            case Delivered():
                self._deliver(message, now)
            case Settled(number=number):
                self._book(number)
            case Connected(epoch=epoch):
                if self.state is not State.ENDED:
                    self._connect(epoch)
            case Disconnected():
                self.state = State.APART if self.state is not State.ENDED else State.ENDED
                self._tell_recovery(recovering.CacheUnreachable(), NODE, now)
            case Subscribed(position=position, resumed=resumed):
                self._hands.trials = Trials(message.handling, message.never)
                self._tell_recovery(recovering.CacheReachable(), NODE, now)
                self._subscribed(position, resumed, now)
            case Unsubscribed(code=code, text=text):
                self.state = State.ENDED
                self._effects.append(Ended(code, text))
            case Revoked(topic=topic, source=source, start=start, stop=stop):
                self._revoke((topic, source), start, stop)
            case Lost(topic=topic, source=source, start=start, stop=stop, reason=reason):
                self._miss((topic, source), start, stop, reason, now)
            case _:
                self._tell_recovery(message, peer, now)

    def tick(self, now: float) -> None:
        """Send the outcomes that gathered; see to what is being recovered."""
        self.flush()
        self._hand(self._hands.tick(now))
        self._bury()
        if self._recovery is not None:
            self._recovery.tick(now)
            self._recover()

    def next_deadline(self) -> float | None:
        """When something that is being recovered needs a look."""
        due = [self._hands.next_deadline()]
        due += [self._recovery.next_deadline()] if self._recovery is not None else []
        return min((at for at in due if at is not None), default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- coming and going

    def _connect(self, epoch: str) -> None:
        self.flush()
        self.state = State.ASKING
        held = [
            Held(*stream, *bounds)
            for seqs in (self._in_hand, self._again)
            for stream, *bounds in seqs.ranges()
        ]
        held += [Held(row.topic, row.source, row.start, row.stop) for row in self._said.all_rows()]
        self._granted = max(self._window - self._buffered, 0)
        self._owed = min(self._window - self._buffered, 0)
        start = self._resume_from(epoch)
        self._epoch = epoch
        who = (self.sub, self.pattern, self.name)
        request = Subscribe(*who, start, self._granted, held, self._is_cache, self._takes_streams)
        self._effects.append(SendMessage(request))

    def _resume_from(self, epoch: str) -> Start:
        """Where to go on: the position in the same journal, or else after the seqs that were seen."""
        if self._position < 0:
            return self._start
        if epoch == self._epoch:
            seen = self.checkpoint() if self._is_overtaken and not self.name else None
            return Start(position=self._position, epoch=epoch, checkpoint=seen)
        return Start(checkpoint=self.checkpoint())

    def checkpoint(self) -> dict[str, int]:
        """{source as hex: the last seq that came}."""
        return {source.hex(): seq - 1 for (_, source), seq in self._next.items()}

    def settled(self) -> dict[str, int]:
        """{source as hex: the last seq before which the application has nothing left to settle}."""
        places = self.checkpoint()
        for seqs_of in (self._in_hand, self._again):
            for (_, source), seqs in seqs_of:
                places[source.hex()] = min(places[source.hex()], seqs.first - 1)
        return places

    def _subscribed(self, position: int, resumed: bool, now: float) -> None:
        self.state = State.LIVE
        if self._recovery is not None:
            if self._position < 0:
                self._recovery.start(now)
            elif self._live_epoch != self._epoch:
                self._recovery.look(now)  # another journal: it may lack the tail that the last one had
            self._recover()
        self._live_epoch = self._epoch
        if self._position < 0:
            self._position = position
        self._give_back_again()
        self._effects += [SendMessage(message) for message in self._said.unbooked()]
        self._owe(0)
        self._effects.append(Opened(resumed))

    def _give_back_again(self) -> None:
        """The node that we are connected to now may not know what was given back before: say it again."""
        said = self._said.ranges()
        self._said.rows += [
            Row(*stream, low, high, int(Outcome.RELEASED))
            for stream, seqs in self._again
            for low, high in seqs.difference(said.get(stream, SeqSet())).ranges()
        ]
        self._said.flush()

    # -- events

    def _deliver(self, message: Delivered, now: float) -> None:
        if self._recovery is not None and message.attempt == 1:
            self._deliver_in_order(self._recovery, message, now)
            return
        if message.attempt > 1 or (message.ordered_to and self.name):
            fresh = [part for batch in message.batches for part in self._take_again(batch)]
        else:
            fresh = [kept for batch in message.batches if (kept := self._order(batch)) is not None]
            self._move(message.position)
        delivery = Delivery(message.attempt, message.counted, message.ordered_to)
        fresh = [batch.delivered(delivery) for batch in fresh]
        for batch in fresh:
            self._recovered_bytes += 0 if batch.counted else batch.head.length
            self._in_hand.add((batch.topic, batch.source), batch.first, batch.stop)
        if message.counted:
            size = sum(batch.head.length for batch in message.batches)
            size_kept = sum(batch.head.length for batch in fresh)
            self._buffered += size_kept
            self._owe(size - size_kept)
        if fresh:
            self._effects.append(Hand(fresh))

    def _move(self, position: int) -> None:
        self._is_overtaken = self._is_overtaken or position < 0
        self._position = max(self._position, position)

    # -- recovery

    def _deliver_in_order(self, recovery: recovering.Recovery, message: Delivered, now: float) -> None:
        """Pass on what follows; what does not is held until the gap before it is filled or lost."""
        self._move(message.position)
        passed: list[Batch] = []
        for arrived in message.batches:
            batch = arrived if message.counted else arrived.delivered(RECOVERED)
            self._buffered += batch.head.length if message.counted else 0
            if recovery.arrive(batch, now):
                passed.append(batch)
            else:
                self._hand(passed)
                passed = []
                self._recover()
        self._hand(passed)

    def _hand(self, batches: list[Batch]) -> None:
        for batch in batches:
            stream = (batch.topic, batch.source)
            self._next[stream] = max(self._next.get(stream, 0), batch.stop)
            self._recovered_bytes += 0 if batch.counted else batch.head.length
            self._in_hand.add(stream, batch.first, batch.stop)
        if batches:
            self._effects.append(Hand(batches))

    def _tell_recovery(self, message: recovering.Input, peer: Peer, now: float) -> None:
        if self._recovery is not None:
            self._recovery.receive(message, peer, now)
            self._recover()

    def _miss(self, stream: Stream, start: int, stop: int, reason: str, now: float) -> None:
        """The node can't deliver these. Some other cache may have them."""
        if self._recovery is None or not self._recovery.caches:
            self._lose(stream, start, stop, reason)
        else:
            self._recovery.miss(stream, start, stop, now)
            self._recover()

    def _recover(self) -> None:
        """Carry out what recovery wants, in its order."""
        assert self._recovery is not None
        for effect in self._recovery.take_effects():
            match effect:
                case recovering.ReleaseBatches(batches=batches):
                    for batch in batches:
                        if not batch.counted:
                            self._hands.hand(batch)
                    self._hand(batches)
                case recovering.HeldBatchesDropped(size=size):
                    self._buffered -= size
                    self._owe(size)
                case recovering.UnrecoverableGap(series=stream, start=start, stop=stop):
                    self._lose(stream, start, stop, str(Reason.RETENTION))
                case AskCache() | recovering.SurveyCache():
                    self._effects.append(effect)
                case _:
                    assert_never(effect)
        self._recovery.pause(self._recovered_bytes >= self._window)

    def taken_recovered(self, size: int, now: float) -> None:
        """The application took recovered batches of so many bytes: more can be asked for."""
        self._recovered_bytes -= size
        if self._recovery is not None and self._recovery.pause(self._recovered_bytes >= self._window):
            self._recovery.resume(now)
            self._recover()

    # -- order without recovery

    def _order(self, batch: Batch) -> Batch | None:
        """Drop what was seen; what follows on or starts a source is passed on."""
        stream = (batch.topic, batch.source)
        expected = self._next.get(stream, batch.first)
        if batch.stop <= expected:
            return None
        if batch.first > expected and not self.name:
            self._lose(stream, expected, batch.first, str(Reason.RETENTION))
        self._next[stream] = batch.stop
        return batch if batch.first >= expected else batch.cut(expected, batch.stop)

    def _lose(self, stream: Stream, start: int, stop: int, reason: str) -> None:
        """Report a range as lost, once. Without a name that is what has not come, or was given back to come again."""
        again = self._again.take(stream, start, stop)
        lost = [(start, stop)]
        if not self.name:
            expected = self._next.get(stream, start)
            lost = again + ([(expected, stop)] if expected < stop else [])
        known = self.lost.setdefault(stream, SeqSet())
        for low, high in (part for bounds in lost for part in known.missing(*bounds)):
            self._effects.append(Report(*stream, low, high, reason))
            known.add(low, high)
        self._next[stream] = max(self._next.get(stream, 0), stop)

    def taken(self, size: int) -> None:
        """The application took batches of so many bytes: there is room for more."""
        self._buffered -= size
        self._owe(size)

    def _owe(self, size: int) -> None:
        self._owed += size
        if self._owed >= self._window // 4 and self.state is State.LIVE:
            self._granted += self._owed
            self._owed = 0
            self._effects.append(SendMessage(Credit(self.sub, self._granted)))

    # -- outcomes

    def settle(
        self,
        stream: Stream,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
        delay_s: float = 0.0,
        attempt: int = 0,
    ) -> None:
        """The application's word on `[start, stop)`; only what it has in hand counts, and only once."""
        if outcome.is_final and stream in self._revoked:
            self._end_revoked(stream, start, stop, outcome, code, text)
        owned = self._in_hand.take(stream, start, stop)
        if self._hands.has(stream):
            word = Word(outcome, code, text, delay_s)
            owned = [part for bounds in owned for part in self._hands.settle(stream, *bounds, word)]
            self._bury()
        for low, high in owned:
            if outcome is Outcome.ACCEPTED:
                self._said.accept(stream, low, high)
                continue
            if outcome in GIVEN_BACK:
                self._again.add(stream, low, high)
            number = 0 if outcome.is_final else attempt
            self._said.rows.append(Row(*stream, low, high, int(outcome), code, text, delay_s, number))

    def _bury(self) -> None:
        """Recovered events become dead letters too: each batch in a message of its own, as it may be long."""
        dead, self._hands.dead = self._hands.dead, []
        for one in dead:
            self._said.bury(one.batch, str(one.reason), one.code, one.text)
            self.flush()

    def _end_revoked(
        self, stream: Stream, start: int, stop: int, outcome: Outcome, code: int, text: str
    ) -> None:
        """Late, but done: the node takes that if nobody else has the event by then."""
        for low, high in self._revoked.take(stream, start, stop):
            self._again.take(stream, low, high)
            self._said.rows.append(Row(*stream, low, high, int(outcome), code, text))

    def _take_again(self, batch: Batch) -> list[Batch]:
        """What of a repeated hand-over was given back and is waited for; anything else came already.

        A durable subscription may also be handed what another process gave back, and what others overtook.
        """
        stream = (batch.topic, batch.source)
        again = self._again.take(stream, batch.first, batch.stop)
        ranges = self._not_known(stream, batch.first, batch.stop) if self.name else again
        if ranges:
            self._next[stream] = max(self._next.get(stream, 0), ranges[-1][1])
        self._revoked.take(stream, batch.first, batch.stop)
        return [batch.cut(low, high) for low, high in ranges]

    def _not_known(self, stream: Stream, start: int, stop: int) -> list[tuple[int, int]]:
        """Without what the application has in hand, and what it has ended and the node may not know of yet."""
        known = self._in_hand.of(stream)
        for row in self._said.all_rows():
            if (row.topic, row.source) == stream and Outcome(row.outcome).is_final:
                known.add(row.start, row.stop)
        return known.missing(start, stop)

    def _revoke(self, stream: Stream, start: int, stop: int) -> None:
        """Events were held for longer than their lease: they come again, unless the application ends them first."""
        for low, high in self._in_hand.take(stream, start, stop):
            self._again.add(stream, low, high)
            self._revoked.add(stream, low, high)

    def is_ordered(self, topic: str) -> bool:
        """Whether the topic is ordered for those who have a name, which this one has not."""
        return not self.name and self._hands.trials.of(topic).is_ordered

    def extend(self, stream: Stream, start: int, stop: int) -> None:
        """The application is still at these: their lease begins anew."""
        for low, high in self._in_hand.within(stream, start, stop):
            self._said.rows.append(Row(*stream, low, high, int(Outcome.RECEIVED)))

    def flush(self) -> int:
        """Send the outcomes that gathered, as one message; gives the number up to which all are sent."""
        message = self._said.flush()
        if message is not None and self.state is State.LIVE:
            self._effects.append(SendMessage(message))
        return self._said.number

    @property
    def is_settled(self) -> bool:
        """Whether every outcome is booked."""
        return self._said.is_booked

    def _book(self, number: int) -> None:
        self._said.book(number)
        self._effects.append(Booked(number))
