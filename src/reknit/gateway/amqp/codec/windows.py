"""The windows of a client's sessions: how many more frames with messages it takes on each.

A client that does not read a message closes the window of its session, for all links of it: AMQP 1.0, 2.5.6. So a stream
may use half of a window only, and has to know what is left. Proton follows the windows, but does not show them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from reknit.gateway.amqp.codec.attach import fields_of
from reknit.gateway.amqp.codec.encoding import MalformedValue, decode

WIDE_FRAMES: Final = 1 << 16
"""A wider window is not followed: a client that offers it wants to buffer everything."""
_HEADER: Final = struct.Struct(">IBBH")
_PROTOCOL: Final = b"AMQP"
_BEGIN, _ATTACH, _FLOW, _TRANSFER = (b"\x00\x53" + bytes((code,)) for code in (0x11, 0x12, 0x13, 0x14))
_WRAP: Final = 1 << 32


@dataclass(slots=True)
class _Window:
    size: int
    limit: int
    """The id of the first transfer that the client does not take yet."""
    sent: int = 0

    @property
    def left(self) -> int:
        left = (self.limit - self.sent) % _WRAP
        return left if left < _WRAP // 2 else left - _WRAP


class SessionWindows:
    """The narrow windows of one connection. It never judges: frames that are not as AMQP has them are left to proton."""

    def __init__(self) -> None:
        self._offered: dict[int, int] = {}
        """By the client's channel: the window of a session that we have not begun yet."""
        self._windows: dict[int, _Window] = {}
        """By our channel."""
        self._ours: dict[int, int] = {}
        """Our channel, by the client's."""
        self._links: dict[str, int] = {}
        """By the name of a link to the client: our channel."""

    def __bool__(self) -> bool:
        return bool(self._offered or self._windows)

    # -- from the client

    def heard(self, frame: bytes) -> None:
        """The client sent this frame: a begin, a flow, or another one."""
        _, offset, _, channel = _HEADER.unpack_from(frame)
        at = 4 * offset
        code = frame[at : at + 3]
        if code == _BEGIN:
            window = _number(frame, at, 2)
            if window is not None and window < WIDE_FRAMES:
                self._offered[channel] = window
        elif code == _FLOW and channel in self._ours:
            received, window = _number(frame, at, 0), _number(frame, at, 1)
            if window is not None:
                ours = self._windows[self._ours[channel]]
                ours.limit = ((received or 0) + window) % _WRAP
                ours.size = max(ours.size, window)

    # -- from us

    def sent(self, data: bytes) -> None:
        """We sent these whole frames."""
        for at, end, offset, channel in _frames(data):
            code = data[at + 4 * offset : at + 4 * offset + 3]
            if code == _TRANSFER:
                if (window := self._windows.get(channel)) is not None:
                    window.sent = (window.sent + 1) % _WRAP
            elif code == _BEGIN:
                self._begin(channel, data[at:end], 4 * offset)
            elif code == _ATTACH:
                self._attach(channel, data[at:end], 4 * offset)

    def _begin(self, channel: int, frame: bytes, at: int) -> None:
        theirs = _number(frame, at, 0)
        window = None if theirs is None else self._offered.pop(theirs, None)
        self._windows.pop(channel, None)  # of an earlier session
        if theirs is not None and window is not None:
            self._windows[channel] = _Window(window, window)
            self._ours[theirs] = channel

    def _attach(self, channel: int, frame: bytes, at: int) -> None:
        try:
            _, fields = fields_of(frame[at:])
            name, is_receiver = decode(fields[0])[0], decode(fields[2])[0]
        except (MalformedValue, IndexError):
            return
        if not is_receiver and channel in self._windows:
            self._links[name] = channel
        elif not is_receiver:
            self._links.pop(name, None)

    # -- questions

    def stream_frames(self, link_name: str) -> int | None:
        """How many more frames a stream on a link may use, so that half of the window is left to others; None: any."""
        window = self._windows.get(self._links.get(link_name, -1))
        return None if window is None else window.left - window.size // 2


def _frames(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The start, end, offset and channel of each frame."""
    at, size, unpack = 0, len(data), _HEADER.unpack_from
    while size - at >= _HEADER.size:
        if data.startswith(_PROTOCOL, at):
            at += len(_PROTOCOL) + 4
            continue
        length, offset, _, channel = unpack(data, at)
        yield at, at + length, offset, channel
        at += length


def _number(frame: bytes, at: int, field: int) -> int | None:
    """A field of a performative, if it is a number."""
    try:
        found: Any = decode(fields_of(frame[at:])[1][field])[0]
    except (MalformedValue, IndexError, TypeError):
        return None
    return found if isinstance(found, int) else None
