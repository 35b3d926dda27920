"""Message bodies that are still arriving or still being sent. Sans-I/O.

A body is one value of a known size, or several data sections. The payload is the content of the value or the sections.
"""

from __future__ import annotations

import codecs
from typing import Final

from reknit.gateway.amqp.codec.encoding import MalformedValue, skip
from reknit.gateway.amqp.codec.sections import FOOTER, descriptor

TEXT, BYTES, SECTION = b"vbd"
_HEADS: Final = {TEXT: b"\x00\x53\x77\xb1", BYTES: b"\x00\x53\x77\xb0", SECTION: b"\x00\x53\x75\xb0"}
_DATA_HEADS: Final = {b"\x00\x53\x75\xa0": 1, b"\x00\x53\x75\xb0": 4}
"""The first bytes of a data section, and how many bytes its size has."""
FOOTER_BYTES_MAX: Final = 64 << 10


class BodyIn:
    """Decodes a body as it arrives. The first byte it gets is the first byte of the payload.

    >>> body = BodyIn(SECTION, 4)
    >>> body.feed(b"abcd" + b"\\x00\\x53\\x75\\xa0\\x02e"), body.feed(b"f"), body.finish()
    (b'abcde', b'f', None)
    """

    def __init__(self, kind: int, size: int) -> None:
        self._kind = kind
        self._left = size
        """Bytes left of the section that is arriving."""
        self._rest = b""
        """Bytes between sections, or after the last section."""
        self._text = codecs.getincrementaldecoder("utf-8")() if kind == TEXT else None

    def feed(self, data: bytes) -> bytes:
        """The payload bytes among these bytes. Raises `MalformedValue`."""
        payload = data[: self._left]
        self._left -= len(payload)
        self._check_text(payload)
        data = data[len(payload) :]
        while data:
            self._rest += data
            data = self._next_section()
            payload += data[: self._left]
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
        return payload

    def _next_section(self) -> bytes:
        """The bytes after the head of a data section; nothing while the head is incomplete."""
        size_bytes = _DATA_HEADS.get(self._rest[:4]) if self._kind == SECTION else None
        if size_bytes is None or len(self._rest) < 4 + size_bytes:
            if len(self._rest) > FOOTER_BYTES_MAX:
                raise MalformedValue("too many bytes after the body", 0)
            return b""
        at = 4 + size_bytes
        self._left = int.from_bytes(self._rest[4:at], "big")
        found, self._rest = self._rest[at:], b""
        return found

    def _check_text(self, payload: bytes) -> None:
        if self._text is not None:
            try:
                self._text.decode(payload, final=self._left == 0)
            except UnicodeDecodeError:
                raise MalformedValue("a text that is not UTF-8", 0) from None

    def finish(self) -> None:
        """The message ends. Raises `MalformedValue` if the body is incomplete."""
        if self._left:
            raise MalformedValue(f"ends {self._left} bytes before its body does", 0)
        if self._rest:
            section, at = descriptor(self._rest, 0)
            if section != FOOTER or skip(self._rest, at) != len(self._rest):
                raise MalformedValue(f"section {section:#x} after the body", 0)


class BodyOut:
    """Encodes a payload as it comes. `is_strict`: it must have the announced size, and gets no second section.

    >>> BodyOut(TEXT, 2).feed(b"hi", is_last=True).hex(" ")
    '00 53 77 b1 00 00 00 02 68 69'
    """

    def __init__(self, kind: int, size: int, is_strict: bool = False) -> None:
        self._left = size
        self._front = _HEADS[kind] + size.to_bytes(4, "big")
        self._is_strict = is_strict or kind != SECTION

    def feed(self, data: bytes, is_last: bool) -> bytes:
        """The body's bytes for these payload bytes. Raises `MalformedValue` if it is not the announced size."""
        made, self._front = self._front + data[: self._left], b""
        rest = data[self._left :]
        self._left -= min(self._left, len(data))
        if is_last and self._left:
            raise MalformedValue(f"ends {self._left} bytes before its size", 0)
        if rest and self._is_strict:
            raise MalformedValue("is longer than its announced size", 0)
        return made + _HEADS[SECTION] + len(rest).to_bytes(4, "big") + rest if rest else made
