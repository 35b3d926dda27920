"""What the programs of a simulated fabric did and saw: the outside view that the checks compare with the nodes'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

EventId = tuple[str, bytes, int]
"""(topic, source, seq)."""


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
    result: str = ""
    """What a sender was told: ACCEPTED, RELEASED, REJECTED, MODIFIED; empty while it waits, or without an outcome."""


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


class Record:
    """Collects what all programs did and saw, and problems that show at once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.problems: list[str] = []
        self.sent: dict[bytes, Sent] = {}
        self.seen: dict[str, Seen] = {}
        self.replies: dict[str, list[str]] = {}
        """For every request the answers that its program got."""
        self.served: dict[str, int] = {}
        """How often each request was carried out."""
        self.by_id: dict[EventId, bytes] = {}
        self._now = now

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
        sent.is_stored = True

    def ended(self, sent: Sent, result: str) -> None:
        """A sender was told the outcome of its event."""
        if sent.result:
            self.blame(f"{sent.payload!r} ended twice: {sent.result}, then {result}")
        sent.result = result

    # -- subscribers

    def received(self, seen: Seen, topic: str, source: bytes, seq: int, payload: bytes) -> None:
        """A subscriber got an event."""
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
        if sent.id not in (None, event_id):
            self.blame(f"{seen.name} received {payload!r} as seq {seq}, which was {sent.id}")
        sent.id = event_id
        seen.received[payload] = seen.received.get(payload, 0) + 1

    def accepted(self, seen: Seen, payload: bytes) -> None:
        """A subscriber accepted an event, and was told that this is settled."""
        seen.accepted[payload] = seen.accepted.get(payload, 0) + 1
