"""The simple format: `[white space]<bytecount>\\n<name: value\\n>…\\n<payload>\\n`, names and values with `=XX`.

White space between events is a heartbeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from reknit.errors import MalformedFrame

EVENT_BYTES_MAX: Final = 16 << 20
_COUNT_DIGITS_MAX: Final = 12
_ODD = re.compile(rb"[\x00-\x1f\x7f:=]|\A | \Z")
_QUOTED = re.compile(rb"=([0-9A-Fa-f]{2})")
_COUNT = re.compile(rb"[ \t\r\n\0]*+(\d*)(\r?\n)?")


def quote(text: bytes) -> bytes:
    """Escape characters that would end a name or a value: control characters, colon, equals sign, outer spaces.

    >>> quote(b" a=b: c")
    b'=20a=3Db=3A c'
    """
    return _ODD.sub(_quoted, text) if _ODD.search(text) else text


def _quoted(found: re.Match[bytes]) -> bytes:
    return b"=%02X" % found[0][0]


def unquote(text: bytes) -> bytes:
    """Undo `quote`, and any other escape. A lone `=` stays."""
    return _QUOTED.sub(lambda found: bytes((int(found[1], 16),)), text) if b"=" in text else text


def encode(elements: Iterable[tuple[str, str]], payload: bytes) -> bytes:
    """One event in the simple format.

    >>> encode([("kn_id", "m1")], b"first")
    b'16\\nkn_id: m1\\n\\nfirst\\n'
    """
    lines = [quote(name.encode()) + b": " + quote(value.encode()) + b"\n" for name, value in elements]
    body = b"".join((*lines, b"\n", payload))
    return b"%d\n%b\n" % (len(body), body)


def decode(body: bytes) -> dict[str, bytes]:
    """The elements of one encoded event, including its payload. Raises `MalformedFrame`."""
    elements: dict[str, bytes] = {}
    at = 0
    while not body.startswith(b"\n", at):
        end = body.find(b"\n", at)
        if end < 0:
            raise MalformedFrame("an event's headers do not end", f"byte {at} of {len(body)}")
        name, colon, value = body[at:end].partition(b": ")
        if not colon:
            name, colon, value = body[at:end].partition(b":")
        if not colon:
            raise MalformedFrame("an event has a line without a colon", f"byte {at} of {len(body)}")
        elements[unquote(name).decode("utf-8", "replace")] = unquote(value)
        at = end + 1
    elements["kn_payload"] = body[at + 1 :]
    return elements


class SimpleDecoder:
    """Decodes events from bytes that arrive in portions of any size.

    >>> decoder = SimpleDecoder()
    >>> decoder.feed(b"  16\\nkn_id: m1"), decoder.feed(b"\\n\\nfirst\\n \\n")
    ([], [{'kn_id': b'm1', 'kn_payload': b'first'}])
    """

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._at = 0
        """Where the bytes begin that are not decoded yet."""
        self._size = -1
        self._bytes_max = event_bytes_max

    def feed(self, data: bytes) -> list[dict[str, bytes]]:
        """Add bytes, and return the events that are complete. Raises `MalformedFrame`."""
        self._buffer += data
        events: list[dict[str, bytes]] = []
        while self._size >= 0 or self._read_size():
            if len(self._buffer) - self._at <= self._size:  # the linefeed after the event is part of it here
                break
            events.append(self._take())
        del self._buffer[: self._at]
        self._at = 0
        return events

    def _read_size(self) -> bool:
        """Skip heartbeats and read the byte count, if it is complete."""
        found = _COUNT.match(self._buffer, self._at)
        assert found is not None, "the pattern matches an empty text too"
        self._at = found.start(1)
        digits, is_whole = found[1], bool(found[2])
        if not is_whole and len(digits) <= _COUNT_DIGITS_MAX and found.end(1) == len(self._buffer):
            return False
        if not is_whole or not digits or len(digits) > _COUNT_DIGITS_MAX:
            start = bytes(self._buffer[self._at : self._at + 40])
            raise MalformedFrame(f"{start!r} is not a byte count", "the start of an event")
        self._size = int(digits)
        if self._size > self._bytes_max:
            raise MalformedFrame(
                f"an event of {self._size} bytes is over the limit of {self._bytes_max}",
                "the start of an event",
            )
        self._at = found.end()
        return True

    def _take(self) -> dict[str, bytes]:
        end = self._at + self._size
        if self._buffer[end] != 0x0A:
            raise MalformedFrame("an event is not followed by a linefeed", f"byte {self._size}")
        body = bytes(self._buffer[self._at : end])
        self._at = end + 1
        self._size = -1
        return decode(body)
