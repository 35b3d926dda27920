"""The node's side of publishing: takes each event once, in seq order, and acknowledges it when it is durable.

A batch is a range, so everything here is a comparison of two numbers: what follows on is appended, what is known
is acknowledged again and dropped, and what leaves a hole is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, assert_never

import msgspec

from reknit.batch import TIME_US_MAX, TYPE_PUBLISH, Batch, Head
from reknit.errors import InvalidTopic
from reknit.event import FLAG_STREAM
from reknit.frame import Buffer
from reknit.outcome import Code, Reason
from reknit.protocol.effects import Append, Send
from reknit.protocol.machine import Peer
from reknit.topic import check_topic
from reknit.wire.codec import Frames
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

TOPICS_KNOWN_MAX: Final = 100_000
"""Topics whose spelling was checked are remembered up to this many; then the memory starts anew."""
REFUSED_SOURCES_MAX: Final = 65_536
"""So many sources whose events were refused are remembered, so that a repeated one is no second dead letter."""
SUPERSEDED: Final = "another connection publishes as this source now: give each program a name of its own"


class Kept(msgspec.Struct, frozen=True):
    """The journal made everything up to this append number durable."""

    number: int


class Full(msgspec.Struct, frozen=True):
    """The journal can't take more for now, and why."""

    text: str


class Room(msgspec.Struct, frozen=True):
    """The journal takes events again."""


class Withheld(msgspec.Struct, frozen=True):
    """Subscribers' queues are full: what `refuses` gives words for stays with its publisher. None: none is full."""

    refuses: Callable[[str, int], str] | None
    is_less: bool = True
    """Whether who waits may try again."""


class Joined(msgspec.Struct, frozen=True):
    """The peer's connection stands. Who joined later speaks for a source against who joined before."""


class Left(msgspec.Struct, frozen=True):
    """The peer's connection is gone."""


class Problem(msgspec.Struct, frozen=True):
    """Why events are not taken, ever. With a reason, each of them becomes a dead letter."""

    code: Code
    text: str
    reason: Reason | None = None


class Refused(msgspec.Struct, frozen=True):
    """These events were not taken, and their publisher was told: make dead letters of them."""

    peer: Peer
    batch: Batch
    problem: Problem
    attempts: int = 0
    """How often a subscriber tried them: one that recovered them elsewhere may refuse them, too."""


Input = Frames | Declare | Kept | Full | Room | Withheld | Joined | Left
Effect = Append | Send | Refused
Permit = Callable[[Peer, bytes, str], Problem | None]
"""Says whether a peer may publish as a source on a topic. Asked once for each of these on every connection."""
Inspect = Callable[[Peer, Batch], Problem | None]
"""Says whether the attributes of a batch's events are fine, where they have some. Asked for every such batch."""


class Intake:
    """Takes events of many sources from many peers.

    >>> from reknit.batch import Batch
    >>> intake = Intake({})
    >>> batch = Batch.build(b"s" * 16, "plant/temp", 1, [b"21.5"], time_us=0)
    >>> intake.receive(Frames(batch.data, [batch.head]), "publisher", 0.0)
    >>> [append] = intake.take_effects()
    >>> intake.receive(Kept(append.number), "journal", 0.1)
    >>> intake.take_effects()
    [Send(peer='publisher', message=Ack(source=b'ssssssssssssssss', seq=1))]
    """

    def __init__(
        self,
        kept: Mapping[bytes, int],
        sources_max: int = 1_000_000,
        events_max: int = 1 << 20,
        permit: Permit | None = None,
        inspect: Inspect | None = None,
    ) -> None:
        self._kept = dict(kept)
        """The last durable seq by source."""
        self._next = {source: seq + 1 for source, seq in kept.items()}
        """The next seq to append by source: at least the durable ones are before it."""
        self._begins: dict[bytes, int] = {}
        """Where new sources begin whose first events were turned away."""
        self._asked: set[tuple[Peer, bytes]] = set()
        self._waiting: deque[tuple[int, Peer, dict[bytes, int]]] = deque()
        self._topics: set[str] = set()
        self._full = ""
        self._peers: dict[Peer, int] = {}
        """Who is connected, and as which of all connections."""
        self._publishing: set[Peer] = set()
        """Who of them publishes: they are told to wait and to go on."""
        self._joined = 0
        self._claims: dict[bytes, int] = {}
        """The connection that declared a lasting source last. What an older one still sends is not taken: its
        program may be gone, and the next one has been told where to go on."""
        self._sources_max = sources_max
        self._events_max = events_max
        self._permit = permit
        self._inspect = inspect
        self._permitted: dict[Peer, dict[bytes, str]] = {}
        """By connection: the sources that may publish, and on which topic. Empty while everyone may."""
        self._refused: dict[bytes, int] = {}
        """By source: the seq before which events were refused and have become dead letters."""
        self._refuses: Callable[[str, int], str] | None = None
        self._zero_us = self._future_us = 0
        self._latest_us = TIME_US_MAX
        """No event may be from later than this."""
        self._number = 0
        self._effects: list[Effect] = []
        self.duplicates = 0
        """Events that came again and were dropped."""

    @property
    def is_full(self) -> bool:
        return bool(self._full)

    def next_number(self) -> int:
        """The number of the next append, shared with whoever else writes to the same journal."""
        self._number += 1
        return self._number

    def set_clock(self, zero_us: int, future_s_max: float) -> None:
        """What time of day it was at `now` 0, and how far in the future an event may be from; 0: any."""
        self._zero_us, self._future_us = zero_us, int(future_s_max * 1e6)

    def expected(self, source: bytes) -> int:
        """The next seq that is taken of a source that is known."""
        return self._next.get(source, 1)

    def skip(self, source: bytes, seq: int) -> None:
        """What is missing of a source before `seq` will never come: go on there."""
        if seq > self._next.get(source, 1):
            self._next[source] = seq
        self._asked = {asked for asked in self._asked if asked[1] != source}

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """Batches or a question from a publisher, or news from the journal."""
        match message:
            case Frames():
                if self._future_us:
                    self._latest_us = self._zero_us + int(now * 1e6) + self._future_us
                self._take(message if self._refuses is None else self._withhold(message, peer), peer)
            case Withheld(refuses=refuses, is_less=is_less):
                self._refuses = refuses
                if is_less and not self._full:
                    self._go()
            case Kept(number=number):
                self._confirm(number)
            case Declare(source=source, topic=topic):
                if (problem := self._denied(source, topic, peer)) is None:
                    self._declare(source, peer)
                else:
                    refusal = Refuse(source, 1, 1, problem.code, problem.text)
                    self._effects.append(Send(peer, refusal))
            case Full(text=text):
                self._stop(text)
            case Room():
                self._resume()
            case Joined():
                self._join(peer)
            case Left():
                self._forget(peer)
            case _:
                assert_never(message)

    def _join(self, peer: Peer) -> int:
        """The number of the peer's connection."""
        if peer not in self._peers:
            self._joined += 1
            self._peers[peer] = self._joined
        return self._peers[peer]

    def _declare(self, source: bytes, peer: Peer) -> None:
        """Tell how far a source has got, once that is certain: what was appended for it counts."""
        joined = self._join(peer)
        self._publishing.add(peer)
        if source not in self._claims and len(self._claims) >= self._sources_max:
            text = f"the node knows {self._sources_max} sources already (limits.sources_max)"
            self._effects.append(Send(peer, Refuse(source, 1, 1, Code.RESOURCE_EXHAUSTED, text)))
            return
        if self._claims.get(source, 0) > joined:
            self._effects.append(Send(peer, Refuse(source, 1, 1, Code.ABORTED, SUPERSEDED)))
            return
        self._claims[source] = joined
        kept, stop = self._kept.get(source, 0), self._next.get(source, 1)
        if kept + 1 >= stop:
            self._effects.append(Send(peer, Ack(source, kept)))
        else:
            self._waiting.append((self._number, peer, {source: stop}))

    def _take(self, frames: Frames, peer: Peer) -> None:
        joined = self._join(peer)
        self._publishing.add(peer)
        claims = self._claims
        if self._full:
            self._turn_away(frames.heads, peer, self._full)
            return
        permitted = None if self._permit is None else self._permitted.setdefault(peer, {})
        nexts, topics = self._next, self._topics
        events_max, latest_us = self._events_max, self._latest_us
        taken: list[Head] = []
        stops: dict[bytes, int] = {}
        at = taken_at = 0
        for head in frames.heads:
            source = head.source
            is_next = (  # and plain, and its topic is known to be fine
                head.first == nexts.get(source)
                and head.topic in topics
                and head.count <= events_max
                and head.time_us <= latest_us
                and head.type == TYPE_PUBLISH
                and not head.flags
                and (permitted is None or permitted.get(source) == head.topic)
                and (not claims or claims.get(source, joined) == joined)
            )
            if is_next:
                nexts[source] = stops[source] = head.first + head.count
                taken.append(head)
                if self._asked:
                    self._asked.discard((peer, source))
            else:
                self._append(peer, frames.data[taken_at:at], taken, stops)
                taken, stops = [], {}
                self._take_odd(head, frames.data[at : at + head.length], peer)
                taken_at = at + head.length
            at += head.length
        self._append(peer, frames.data[taken_at:at], taken, stops)

    def _withhold(self, frames: Frames, peer: Peer) -> Frames:
        """What goes to a full queue stays with its publisher, and so does what follows of its source; gives the rest."""
        assert self._refuses is not None
        held: dict[bytes, str] = {}
        pieces: list[Buffer] = []
        taken: list[Head] = []
        away: list[Head] = []
        at = 0
        for head in frames.heads:
            if head.source in held or (text := self._refuses(head.topic, head.priority)):
                held.setdefault(head.source, text)
                away.append(head)
            else:
                pieces.append(frames.data[at : at + head.length])
                taken.append(head)
            at += head.length
        if not away:
            return frames
        self._join(peer)
        self._publishing.add(peer)
        self._turn_away(away, peer, next(iter(held.values())), list(held))
        return Frames(b"".join(pieces), taken)

    def _turn_away(self, heads: list[Head], peer: Peer, text: str, sources: Sequence[bytes] = ()) -> None:
        """Take none of these for now. A new source begins with what was turned away first, not with what comes next."""
        for head in heads:
            if head.source not in self._next and len(self._begins) < self._sources_max:
                self._begins.setdefault(head.source, head.first)
        self._effects.append(Send(peer, Hold(Code.RESOURCE_EXHAUSTED, text, list(sources))))

    def _append(self, peer: Peer, data: Buffer, heads: list[Head], stops: dict[bytes, int]) -> None:
        if not heads:
            return
        number = self.next_number()
        self._waiting.append((number, peer, stops))
        self._effects.append(Append(number, data, heads))

    def _take_odd(self, head: Head, data: Buffer, peer: Peer) -> None:
        """A batch that is not simply the next of a known source."""
        expected = self._next.get(head.source) or self._begins.get(head.source, head.first)
        if (problem := self._denied(head.source, head.topic, peer)) is not None:
            self._refuse(Batch(head, data), peer, problem)
        elif self._claims.get(head.source, self._peers[peer]) != self._peers[peer]:
            refusal = Refuse(head.source, head.first, head.stop, Code.ABORTED, SUPERSEDED)
            self._effects.append(Send(peer, refusal))
        elif head.stop <= expected:
            self.duplicates += head.count
            self._acknowledge_again(head, peer)
        elif head.first > expected:
            self._ask(head.source, expected, peer)
        elif (problem := self._problem(Batch(head, data), peer)) is not None:
            self._refuse(Batch(head, data), peer, problem)
        else:
            self.duplicates += expected - head.first
            batch = Batch(head, data).cut(expected, head.stop)
            self._begins.pop(head.source, None)
            self._asked.discard((peer, head.source))
            self._next[head.source] = head.stop
            self._append(peer, bytes(batch.data), [batch.head], {head.source: head.stop})

    def _acknowledge_again(self, head: Head, peer: Peer) -> None:
        """Known: acknowledge what is durable; the rest is acknowledged to this peer when it becomes so."""
        kept = self._kept.get(head.source, 0)
        if kept:
            self._effects.append(Send(peer, Ack(head.source, kept)))
        if kept + 1 < head.stop and self._waiting:
            self._waiting.append((self._number, peer, {head.source: head.stop}))

    def _ask(self, source: bytes, expected: int, peer: Peer) -> None:
        """A hole: ask for what is missing, once until it closes."""
        if (peer, source) not in self._asked:
            self._asked.add((peer, source))
            self._effects.append(Send(peer, Expect(source, expected)))

    def _refuse(self, batch: Batch, peer: Peer, problem: Problem) -> None:
        """Tell the publisher, and once make dead letters of what it sent."""
        source, stop = batch.source, batch.stop
        self._effects.append(Send(peer, Refuse(source, batch.first, stop, problem.code, problem.text)))
        if source not in self._next and len(self._begins) < self._sources_max:
            self._begins.setdefault(source, batch.first)  # what follows is not taken without it
        if problem.reason is None or stop <= self._refused.get(source, 0):
            return
        if len(self._refused) >= REFUSED_SOURCES_MAX:
            self._refused.clear()
        rest = batch.cut(self._refused.get(source, 0), stop)
        self._refused[source] = stop
        self._effects.append(Refused(peer, rest, problem))

    def _denied(self, source: bytes, topic: str, peer: Peer) -> Problem | None:
        """Why this connection may not publish as a source on a topic; asked once."""
        if self._permit is None:
            return None
        permitted = self._permitted.setdefault(peer, {})
        if permitted.get(source) == topic:
            return None
        problem = self._permit(peer, source, topic)
        if problem is None:
            permitted[source] = topic
        return problem

    def _problem(self, batch: Batch, peer: Peer) -> Problem | None:
        """Why this batch can't be taken, ever."""
        head = batch.head
        if head.topic not in self._topics:
            try:
                check_topic(head.topic)
            except InvalidTopic as error:
                return Problem(Code.INVALID_ARGUMENT, str(error), Reason.MALFORMED)
            if len(self._topics) >= TOPICS_KNOWN_MAX:
                self._topics.clear()
            self._topics.add(head.topic)
        if head.count > self._events_max:
            text = f"a batch of {head.count} events is over limits.batch_events_max"
            return Problem(Code.INVALID_ARGUMENT, text, Reason.MALFORMED)
        if head.time_us > self._latest_us:
            text = "an event from too far in the future (limits.future_s_max): set the publisher's clock"
            return Problem(Code.INVALID_ARGUMENT, text, Reason.MALFORMED)
        if head.flags & FLAG_STREAM:
            text = "an event without its payload is no event: the pieces of a stream follow on `Begin`"
            return Problem(Code.INVALID_ARGUMENT, text, Reason.MALFORMED)
        if head.source not in self._next and len(self._next) >= self._sources_max:
            text = f"the node knows {self._sources_max} sources already (limits.sources_max)"
            return Problem(Code.RESOURCE_EXHAUSTED, text)
        if self._inspect is not None and (head.flags or head.type != TYPE_PUBLISH):
            return self._inspect(peer, batch)
        return None

    def _confirm(self, number: int) -> None:
        acks: dict[tuple[Peer, bytes], int] = {}
        while self._waiting and self._waiting[0][0] <= number:
            _, peer, stops = self._waiting.popleft()
            for source, stop in stops.items():
                self._kept[source] = max(self._kept.get(source, 0), stop - 1)
                acks[peer, source] = self._kept[source]
        self._effects += [
            Send(peer, Ack(source, seq)) for (peer, source), seq in acks.items() if peer in self._peers
        ]

    def _stop(self, text: str) -> None:
        """The journal is full. Nothing that was appended is lost; what comes now stays with its publisher."""
        if not self._full:
            self._effects += [
                Send(peer, Hold(Code.RESOURCE_EXHAUSTED, text)) for peer in self._sorted_peers()
            ]
        self._full = text

    def _resume(self) -> None:
        if self._full:
            self._full = ""
            self._go()

    def _go(self) -> None:
        self._asked.clear()
        self._effects += [Send(peer, Go()) for peer in self._sorted_peers()]

    def _sorted_peers(self) -> Iterable[Peer]:
        return sorted(self._publishing, key=repr)

    def _forget(self, peer: Peer) -> None:
        self._peers.pop(peer, None)
        self._permitted.pop(peer, None)
        self._publishing.discard(peer)
        self._asked = {(who, source) for who, source in self._asked if who != peer}

    def tick(self, now: float) -> None:
        """Nothing is due by time here."""

    def next_deadline(self) -> float | None:
        return None

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects
