"""A dead letter: an event that ended undelivered, with its reason; and a filter that selects dead letters."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from reknit.attempts import Attempt
from reknit.decoding import decode_packed
from reknit.fields import Number
from reknit.outcome import Code
from reknit.private_topics import public_topic
from reknit.topic import Pattern

__all__ = ["REDRIVEN", "REDRIVEN_COUNT", "DeadLetterContent", "DeadLetterFilter", "read_letter"]

REDRIVEN: Final = "redriven"
"""The header of a redriven event that names the original event."""
REDRIVEN_COUNT: Final = "redriven-count"


class DeadLetterContent(msgspec.Struct, frozen=True):
    """The content of a dead letter. `payload` is the undelivered event's, unchanged.

    It has more than 15 fields because it is a stored format: one map with the event, its batch, its end and its
    attempts.

    >>> DeadLetterContent("plant/a", bytes(16), 7, 0, b"21.5", "audit", 4, "expired", "", 0, "n1", 0).id
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
    """The header and topic of the event's batch, unchanged."""
    columns: dict[str, Any] = {}
    """The event's fields beside its payload."""
    priority: int = 1
    type: int = 1
    flags: int = 0
    ttl_ms: int = 0
    has_payload: bool = True
    path: str = ""
    """The path of the last attempt."""
    tries: tuple[Attempt, ...] = ()
    """The last attempts, each with its time and outcome."""
    first_us: int = 0
    last_us: int = 0
    """The times of the first and the last of these attempts."""
    redriven: int = 0
    """How often the event had been redriven before."""
    original: str = ""
    """The event's id before its first redrive; empty if it was never redriven."""

    @property
    def id(self) -> str:
        """The event's id, as `source:seq`.

        >>> DeadLetterContent("plant/a", b"s", 7, 0, b"", "", 4, "expired", "", 0, "n1", 0).id
        '73:7'
        """
        return f"{self.source.hex()}:{self.seq}"

    def redriven_headers(self) -> dict[str, str]:
        """The headers of the event when it is published again: they name its first id, and why it comes again.

        >>> made = DeadLetterContent("plant/a", b"s", 7, 0, b"", "audit", 4, "expired", "", 0, "n1", 0)
        >>> made.redriven_headers()["redriven"], made.redriven_headers()["redriven-for"]
        ('73:7', 'audit')
        """
        return {
            **(self.columns.get("headers") or {}),
            REDRIVEN: self.original or self.id,
            REDRIVEN_COUNT: str(self.redriven + 1),
            "redriven-for": self.subscriber,
            "redriven-reason": self.reason,
        }


_decoder = msgspec.msgpack.Decoder(DeadLetterContent)


def read_letter(payload: bytes) -> DeadLetterContent:
    """The dead letter in an event's payload. Raises `MalformedFrame` for anything else.

    >>> made = DeadLetterContent("a", b"s", 7, 0, b"x", "audit", 4, "expired", "", 0, "n", 0)
    >>> read_letter(msgspec.msgpack.encode(made)).seq
    7
    """
    return decode_packed(_decoder.decode, payload, "a dead letter")


class DeadLetterFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects the dead letters that match every field that is set.

    >>> letter = DeadLetterContent("plant/a", b"s", 7, 0, b"", "audit", 4, "expired", "", 0, "n1", 5)
    >>> DeadLetterFilter(reason="expired", since_us=3).fits(letter), DeadLetterFilter(code="INTERNAL").fits(letter)
    (True, False)
    """

    reason: str = ""
    topic: str = ""
    """A pattern."""
    code: str = ""
    subscriber: str = ""
    since_us: Number = 0
    until_us: Number = 0

    def fits(self, letter: DeadLetterContent, pattern: Pattern | None = None) -> bool:
        """Whether a dead letter matches. The caller passes the pattern of `topic`, so that it is parsed once.

        >>> letter = DeadLetterContent("plant/a", b"s", 7, 0, b"", "audit", 4, "expired", "", 0, "n1", 5)
        >>> DeadLetterFilter(topic="car/**").fits(letter, Pattern("car/**"))
        False
        """
        return (
            (not self.reason or letter.reason == self.reason)
            and (pattern is None or pattern.matches(public_topic(letter.topic)))
            and (not self.code or letter.code == Code[self.code.upper()])
            and (not self.subscriber or letter.subscriber == self.subscriber)
            and self.since_us <= letter.died_us
            and (not self.until_us or letter.died_us < self.until_us)
        )
