"""The default outcome of a receiver's source, which proton neither reads nor writes: taken from and put into attaches.

AMQP 1.0, 3.5.3: "Indicates the outcome to be used for transfers that have not reached a terminal state at the receiver
when the transfer is settled".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from reknit.gateway.amqp.codec.conditions import Modified
from reknit.gateway.amqp.codec.encoding import Described, MalformedValue, decode, encode, listed, skip

FRAME_BYTES_MAX: Final = 16 << 10
"""A longer attach is not looked at."""
OUTCOME_BYTES_MAX: Final = 256
"""A longer default outcome does not hold."""
_HEADER: Final = struct.Struct(">IBBH")
_PROTOCOL: Final = b"AMQP"
_HEAD_BYTES: Final = 32
"""Within so many bytes a frame names its performative."""
_ATTACH: Final = (0x12, "amqp:attach:list")
_NAME, _ROLE, _SOURCE, _DEFAULT = 0, 2, 5, 8
"""Fields of an attach, and of its source."""
_NULL: Final = b"\x40"
_OUTCOMES: Final = {
    0x24: "accepted", "amqp:accepted:list": "accepted",
    0x25: "rejected", "amqp:rejected:list": "rejected",
    0x26: "released", "amqp:released:list": "released",
    0x27: "modified", "amqp:modified:list": "modified",
}  # fmt: skip


class DefaultOutcome(NamedTuple):
    """What holds for a message that its receiver settles without an outcome."""

    encoded: bytes
    name: str
    """`accepted`, `rejected`, `released` or `modified`."""
    condition: tuple[str, str] = ("", "")
    modified: Modified = Modified()


def outcome_of(encoded: bytes) -> DefaultOutcome | None:
    """The outcome in these bytes; None if they are another one or nothing of that.

    >>> outcome_of(b"\\x00\\x53\\x26\\x45").name, outcome_of(b"\\x40")
    ('released', None)
    """
    found, _ = decode(encoded)
    name = _OUTCOMES.get(found.descriptor) if isinstance(found, Described) else None
    if name is None or not isinstance(found.value, list) or len(encoded) > OUTCOME_BYTES_MAX:
        return None
    fields = [*found.value, None, None, None]
    if name == "modified":
        annotations = encode(fields[2]) if isinstance(fields[2], dict) else b""
        return DefaultOutcome(
            encoded, name, modified=Modified(fields[0] is True, fields[1] is True, annotations)
        )
    return DefaultOutcome(encoded, name, _error(fields[0]) if name == "rejected" else ("", ""))


def _error(error: Any) -> tuple[str, str]:
    fields = error.value if isinstance(error, Described) and isinstance(error.value, list) else []
    words = [one if isinstance(one, str) else "" for one in (*fields, None, None)]
    return words[0], words[1]


# -- frames


class AttachScanner:
    """Follows the frames that a client sends, and finds the default outcomes of its receivers.

    `on_window` gets each frame that is about the window of a session. It never judges: what is not as AMQP has it is
    left to proton.
    """

    def __init__(self, on_window: Callable[[bytes], None] = lambda frame: None) -> None:
        self._on_window = on_window
        self._part = b""
        """The beginning of a frame that has to be looked at."""
        self._skip = 0
        """How many more bytes belong to a frame that does not."""

    def feed(self, data: bytes) -> Iterator[tuple[str, DefaultOutcome]]:
        """The name of each receiver with a default outcome whose attach ends in these bytes."""
        if self._part:
            data, self._part = self._part + data, b""
        at, size, unpack = self._skip, len(data), _HEADER.unpack_from
        while size - at >= _HEADER.size:
            length, offset, _, _ = unpack(data, at)
            if data.startswith(_PROTOCOL, at):
                at += len(_PROTOCOL) + 4
                continue
            if length < _HEADER.size:
                at = size  # proton ends the connection
                break
            if length > FRAME_BYTES_MAX or data[at + 8 : at + 11] == _TRANSFER:
                at += length
                continue
            if size - at < min(length, _HEAD_BYTES):
                break
            is_window = data[at + 4 * offset : at + 4 * offset + 3] in _WINDOWS
            if not is_window and not _is_attach(data, at + 4 * offset):
                at += length
                continue
            if size - at < length:
                break
            if is_window:
                self._on_window(data[at : at + length])
                at += length
                continue
            found = _default_of(data[at + 4 * offset : at + length])
            if found is not None:
                yield found
            at += length
        self._part, self._skip = data[at:], max(0, at - size)


_TRANSFER: Final = b"\x00\x53\x14"
_WINDOWS: Final = (b"\x00\x53\x11", b"\x00\x53\x13")
"""How begin and flow start."""


def _is_attach(data: bytes, at: int) -> bool:
    if data[at : at + 3] == b"\x00\x53\x12":
        return True
    try:
        return data[at : at + 2] != b"\x00\x53" and data[at] == 0 and decode(data, at + 1)[0] in _ATTACH
    except (MalformedValue, IndexError, TypeError):
        return False


def _default_of(body: bytes) -> tuple[str, DefaultOutcome] | None:
    """The name and default outcome in a receiver's attach; None if there is none that holds."""
    try:
        _, attach = fields_of(body)
        if decode(attach[_ROLE])[0] is not True:
            return None
        _, source = fields_of(attach[_SOURCE])
        found = outcome_of(source[_DEFAULT])
        name = decode(attach[_NAME])[0]
    except (MalformedValue, IndexError, TypeError):
        return None
    return (name, found) if found is not None and isinstance(name, str) else None


def fields_of(data: bytes) -> tuple[bytes, list[bytes]]:
    """The descriptor of a described list, and its fields, each as it is encoded."""
    at = skip(data, 1) if data[:1] == b"\x00" else 0
    code = data[at]
    if code not in (0xC0, 0xD0, 0x45):
        raise MalformedValue("not a list", at)
    width = {0x45: 0, 0xC0: 1, 0xD0: 4}[code]
    count = int.from_bytes(data[at + 1 + width : at + 1 + 2 * width], "big")
    first, found = at + 1 + 2 * width, []
    for _ in range(count):
        end = skip(data, first)
        found.append(data[first:end])
        first = end
    return data[:at], found


def with_defaults(data: bytes, take: Callable[[str], DefaultOutcome | None]) -> bytes:
    """Whole frames that we send, with the default outcomes of the links that they attach. `take` gives one by the name
    of its link."""
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        if data.startswith(_PROTOCOL, at):
            length = 8
            parts.append(data[at : at + length])
        else:
            length = _HEADER.unpack_from(data, at)[0]
            parts.append(_with_default(data[at : at + length], take))
        at += length
    return b"".join(parts)


def _with_default(frame: bytes, take: Callable[[str], DefaultOutcome | None]) -> bytes:
    _, offset, kind, channel = _HEADER.unpack_from(frame)
    if not _is_attach(frame, 4 * offset):
        return frame
    descriptor, attach = fields_of(frame[4 * offset :])
    if decode(attach[_ROLE])[0] is not False or len(attach) <= _SOURCE:
        return frame
    outcome = take(decode(attach[_NAME])[0])
    if outcome is None or attach[_SOURCE] == _NULL:
        return frame
    source_descriptor, source = fields_of(attach[_SOURCE])
    source += [_NULL] * (_DEFAULT + 1 - len(source))
    source[_DEFAULT] = outcome.encoded
    attach[_SOURCE] = source_descriptor + listed(source)
    body = frame[_HEADER.size : 4 * offset] + descriptor + listed(attach)
    return _HEADER.pack(_HEADER.size + len(body), offset, kind, channel) + body
