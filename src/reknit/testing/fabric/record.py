"""What the programs of a simulated fabric did and saw: the outside view that the checks compare with the nodes'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reknit.batch import Batch
from reknit.dead_letter import DeadLetterContent, read_letter
from reknit.errors import Gone
from reknit.testing.fabric.nodes import FabricNode

EventId = tuple[str, bytes, int]
"""(topic, source, seq)."""
REDRIVEN = "redriven"
"""The header of a redriven event, and who is said to have published it."""


@dataclass(slots=True)
class Sent:
    """An event that a program published. Its payload is in no other event."""

    payload: bytes
    topic: str
    publisher: str
    put_at: float
    id: EventId | None = None
    is_stored: bool = False
    """The program was told that it is durable."""
    stored_at: float = float("inf")
    result: str = ""
    """What a sender was told: ACCEPTED, RELEASED, REJECTED, MODIFIED; empty while it waits, or without an outcome."""
    ended_at: float = 0.0
    """When a sender was told that."""
    copies_max: int = 1
    """How often it may be stored: a program without a source of its own repeats what was not confirmed."""


@dataclass(slots=True)
class Seen:
    """What one subscriber saw, through all of its lives."""

    name: str
    pattern: str
    node: str
    is_durable: bool
    ready_at: float = float("inf")
    """From then on every node knew of it, if it was open all the time."""
    received: dict[bytes, int] = field(default_factory=dict)
    """How often each payload came."""
    accepted: dict[bytes, int] = field(default_factory=dict)
    rejected: set[bytes] = field(default_factory=set)
    lost: list[tuple[str, bytes, int, int]] = field(default_factory=list)
    """Ranges that were told to be lost: topic, source, start, stop."""
    last: dict[tuple[str, bytes], int] = field(default_factory=dict)
    """The last seq of each series in this life."""


@dataclass(slots=True)
class Reading:
    """What a tunnel's client read from when it was told that it is live, through all that it resumed."""

    name: str
    pattern: str
    node: str
    is_strict: bool
    """It resumes by checkpoints: nothing comes again, in no life."""
    live_at: float
    lives: list[dict[bytes, int]] = field(default_factory=list)
    """How often each payload came, in each life of the program."""
    is_over: bool = False
    """It was told that it can't resume."""


@dataclass(slots=True)
class Film:
    """An event that is written and read in pieces."""

    name: str
    written: bytearray = field(default_factory=bytearray)
    result: str = ""
    """What its writer was told: ACCEPTED, RELEASED, REJECTED, MODIFIED; GIVEN UP; empty if it ended before."""
    readers: list[str] = field(default_factory=list)
    """Who read it to its end."""


class Record:
    """Collects what all programs did and saw, and problems that show at once."""

    def __init__(
        self, now: Callable[[], float], is_sent_since: Callable[[EventId, float], bool] = lambda *_: False
    ) -> None:
        self.problems: list[str] = []
        self.revoked: frozenset[str] = frozenset()
        """The identities whose tokens are revoked now."""
        self.sent: dict[bytes, Sent] = {}
        self.seen: dict[str, Seen] = {}
        self.replies: dict[str, list[str]] = {}
        """For every request the answers that its program got."""
        self.served: dict[str, int] = {}
        """How often each request was carried out."""
        self.readings: list[Reading] = []
        self.echoes: dict[bytes, bool] = {}
        """Messages to a dynamic address of AMQP that either came or were accepted, not yet both: whether they came."""
        self.by_id: dict[EventId, bytes] = {}
        self.letters: dict[tuple[str, int], DeadLetterContent] = {}
        """Every dead letter, by its node and number."""
        self.ends: dict[tuple[str, bytes], DeadLetterContent] = {}
        """The same, by subscriber and payload."""
        self.redriven: dict[EventId, dict[str, str]] = {}
        """The redriven events that somebody got, with their headers."""
        self.films: dict[str, Film] = {}
        """Events that are written in pieces, by name."""
        self.is_forgetful = False
        """Whether a node lost its disk: it may deliver again what it had known to be accepted."""
        self._letters_read: dict[str, int] = {}
        self._now, self._is_sent_since = now, is_sent_since

    def blame(self, problem: str) -> None:
        """Record a problem."""
        self.problems.append(f"at {self._now():.4f}: {problem}")

    # -- publishers

    def put(self, payload: bytes, topic: str, publisher: str) -> Sent:
        """A program publishes an event."""
        assert payload not in self.sent, "a payload is in one event only"
        sent = self.sent[payload] = Sent(payload, topic, publisher, self._now())
        return sent

    def stored(self, sent: Sent) -> None:
        """The program was told that the event is durable."""
        sent.is_stored, sent.stored_at = True, self._now()

    def ended(self, sent: Sent, result: str) -> None:
        """A sender was told the outcome of its event."""
        if sent.result:
            self.blame(f"{sent.payload!r} ended twice: {sent.result}, then {result}")
        sent.result, sent.ended_at = result, self._now()

    # -- subscribers

    def received(self, seen: Seen, topic: str, source: bytes, seq: int, payload: bytes) -> None:
        """A subscriber got an event.

        A worker whose connection the node gave up may find an event in its socket that another one has accepted by
        then. What no node may do is to send it once its sender was told.
        """
        sent = self.sent.get(payload)
        if sent is None or sent.topic != topic:
            self.blame(f"{seen.name} received {payload!r} on {topic}, which nobody published there")
            return
        event_id = (topic, source, seq)
        before = self.by_id.setdefault(event_id, payload)
        if before != payload:
            self.blame(
                f"{seen.name} received {payload!r} as {topic} {source.hex()} {seq}, which was {before!r}"
            )
        if sent.id not in (None, event_id) and sent.copies_max == 1:
            self.blame(f"{seen.name} received {payload!r} as seq {seq}, which was {sent.id}")
        is_late = sent.result == "ACCEPTED" and self._is_sent_since(event_id, sent.ended_at)
        if is_late and not self.is_forgetful:
            self.blame(f"{seen.name} received {payload!r} after its sender was told that it is accepted")
        sent.id = event_id
        seen.received[payload] = seen.received.get(payload, 0) + 1

    def accepted(self, seen: Seen, payload: bytes) -> None:
        """A subscriber accepted an event, and was told that this is settled."""
        seen.accepted[payload] = seen.accepted.get(payload, 0) + 1

    def name(self, event: Any) -> bytes:
        """The payload of an event; for a redriven one a name of its own, as the payload is that of its original."""
        payload = bytes(event.payload)
        if REDRIVEN not in event.headers:
            return payload
        name = payload + f" redriven as {event.id}".encode()
        if payload not in self.sent:
            self.blame(f"{payload!r} was redriven, and nobody published it")
        elif name not in self.sent:
            self.sent[name] = Sent(name, event.topic, REDRIVEN, self._now())
            self.redriven[event.topic, event.source, event.seq] = dict(event.headers)
        return name

    def film(self, name: str) -> Film:
        """A program writes an event in pieces."""
        film = self.films[name] = Film(name)
        return film

    # -- dead letters

    def forget_letters(self, node: FabricNode) -> None:
        """A node lost its disk: its dead letters may get the same numbers again."""
        self._letters_read.pop(node.name, None)

    def read_letters(self, node: FabricNode) -> None:
        """Take note of a node's new dead letters, before anybody handles them and retention removes them.

        Those that are on their way to the disk can't be read yet. They are read the next time.
        """
        letters, journal = node.node.core.dead_letters, node.node.journal
        start = read = self._letters_read.get(node.name, 1)
        stop = letters.published.last + 1 if letters.published else 1
        for entry in journal.find(letters.topic, letters.source, start, stop):
            try:
                batch = Batch.parse(journal.fetch(entry))
            except Gone:
                continue
            for seq, payload in enumerate(batch.payloads(), batch.first):
                letter = self.letters[node.name, seq] = read_letter(payload)
                self.ends[letter.subscriber, letter.payload] = letter
                read = seq + 1
        self._letters_read[node.name] = read


def key_of(payload: bytes) -> str:
    """The key of an event on a topic whose order is by key."""
    return f"k{int(payload.split()[1]) % 3}"
