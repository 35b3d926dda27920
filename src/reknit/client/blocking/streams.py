"""Streams without asyncio: written and read in a thread, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.streams import GAVE_UP, OutgoingStream
from reknit.event import Event
from reknit.frame import Buffer
from reknit.outcome import Outcome


class SyncStream:
    """Made by `publisher.stream()`; open while in its `with`. See `OutgoingStream`."""

    def __init__(self, thread: LoopThread, stream: OutgoingStream) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def id(self) -> str:
        """The event id as text, for `reknit trail`."""
        return self._stream.id

    @property
    def outcome(self) -> Outcome | None:
        """Known after the `with`."""
        return self._stream.outcome

    def __enter__(self) -> SyncStream:
        self._thread.run(self._stream.__aenter__())
        return self

    def write(self, piece: Buffer | str) -> None:
        """Send one more piece; returns when there is room for the next. Raises if the event has an outcome already."""
        self._thread.run(self._stream.write(piece))

    def abort(self, text: str = GAVE_UP) -> None:
        """Give the event up: no subscriber takes it. Nothing more can be written."""
        self._thread.run(self._stream.abort(text))

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        self._thread.run(self._stream.__aexit__(kind, *args))


def read_pieces(thread: LoopThread, event: Event) -> Iterator[bytes]:
    """An event's payload in pieces, as they come."""
    pieces = event.pieces()

    async def read() -> bytes | None:
        return await anext(pieces, None)

    while (piece := thread.run(read())) is not None:
        yield piece
