"""A dead letter: what is told of an event that ended undelivered, and which of many letters are meant."""

from __future__ import annotations

from typing import Any

import msgspec

from reknit.attempts import Try
from reknit.outcome import Code
from reknit.topic import Pattern

__all__ = ["Letter", "Wanted", "read_letter"]


class Letter(msgspec.Struct, frozen=True):
    """What a dead letter says. Its payload is the undelivered event's, as it was.

    >>> Letter("plant/a", bytes(16), 7, 0, b"21.5", "audit", 4, "expired", "", 0, "n1", 0).id
    '00000000000000000000000000000000:7'
    """

    topic: str
    source: bytes
    seq: int
    time_us: int
    payload: bytes
    subscriber: str
    code: int
    reason: str
    text: str
    attempts: int
    node: str
    died_us: int
    header: bytes = b""
    """The header and topic of the event's batch, as they came."""
    columns: dict[str, Any] = {}
    """What the event has beside its payload."""
    priority: int = 1
    type: int = 1
    flags: int = 0
    ttl_ms: int = 0
    has_payload: bool = True
    path: str = ""
    """Where the last attempt went."""
    tries: tuple[Try, ...] = ()
    """The last attempts, each with its time and outcome."""
    first_us: int = 0
    last_us: int = 0
    """When the first and the last of these came to their outcome."""
    redriven: int = 0
    """How often the event had been redriven before."""
    original: str = ""
    """The id that it had before it was first redriven; empty: it never was."""

    @property
    def id(self) -> str:
        """The event's id, as `source:seq`.

        >>> Letter("plant/a", b"s", 7, 0, b"", "", 4, "expired", "", 0, "n1", 0).id
        '73:7'
        """
        return f"{self.source.hex()}:{self.seq}"


_decoder = msgspec.msgpack.Decoder(Letter)


def read_letter(payload: bytes) -> Letter:
    """The dead letter in an event's payload. Raises `msgspec.DecodeError` for anything else.

    >>> read_letter(msgspec.msgpack.encode(Letter("a", b"s", 7, 0, b"x", "audit", 4, "expired", "", 0, "n", 0))).seq
    7
    """
    return _decoder.decode(payload)


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters: all that fit everything that is given.

    >>> letter = Letter("plant/a", b"s", 7, 0, b"", "audit", 4, "expired", "", 0, "n1", 5)
    >>> Wanted(reason="expired", since_us=3).fits(letter), Wanted(code="INTERNAL").fits(letter)
    (True, False)
    """

    reason: str = ""
    topic: str = ""
    """A pattern."""
    code: str = ""
    subscriber: str = ""
    since_us: int = 0
    until_us: int = 0

    def fits(self, letter: Letter, pattern: Pattern | None = None) -> bool:
        """Whether a letter is meant; the pattern of `topic` is given, so that it is read once.

        >>> letter = Letter("plant/a", b"s", 7, 0, b"", "audit", 4, "expired", "", 0, "n1", 5)
        >>> Wanted(topic="car/**").fits(letter, Pattern("car/**"))
        False
        """
        return (
            (not self.reason or letter.reason == self.reason)
            and (pattern is None or pattern.matches(letter.topic))
            and (not self.code or letter.code == Code[self.code.upper()])
            and (not self.subscriber or letter.subscriber == self.subscriber)
            and self.since_us <= letter.died_us
            and (not self.until_us or letter.died_us < self.until_us)
        )
