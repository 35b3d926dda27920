"""Streams as applications see them: an event that is written in pieces, and one that is read in pieces.

Neither side has more of the event in memory than `anycast.stream_window_bytes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from reknit import environment
from reknit.batch import SOURCE_BYTES, Batch
from reknit.client.message_router import MessageRouter
from reknit.client.outcome_errors import ERRORS, undelivered
from reknit.connection.futures import resolve
from reknit.connection.node_connection import NodeConnection
from reknit.errors import Aborted, Closed, LocalError, NotConnected, ReknitError
from reknit.event import FLAG_STREAM, SIZE_COLUMN
from reknit.frame import Buffer
from reknit.outcome import Code, Outcome
from reknit.protocol.streams.inputs import PIECE_BYTES
from reknit.wire.outcomes import RangeOutcome, Told
from reknit.wire.streams import Abort, Begin, Piece, Room

GAVE_UP: Final = "its publisher gave it up"
LOST: Final = "the connection was lost while it was in flight; it may have been processed"


class OutgoingStream:
    """Made by `publisher.stream()`; open while in its `async with`.

    Leaving it ends the event and waits for its outcome: it raises `Released`, `Rejected` or `Modified` if that is not
    ACCEPTED. Leaving it through an exception aborts the event: every subscriber that has a part of it is told.
    """

    def __init__(
        self,
        router: MessageRouter,
        topic: str,
        *,
        is_resent: bool,
        wait_for_path: Callable[[], Awaitable[None]],
        fields: dict[str, Any],
        headers: dict[str, str],
        size: int | None = None,
    ) -> None:
        self.source = environment.token_bytes(SOURCE_BYTES)
        self.topic = topic
        self.outcome: Outcome | None = None
        """Known after the `async with`."""
        self._router = router
        self._connection = router.connection
        self._is_resent = is_resent
        self._wait_for_path = wait_for_path
        self._fields = fields
        self._headers = headers
        self._size = size
        self._sent = self._room = 0
        self._error: ReknitError | None = None
        self._is_open = False
        self._wake: asyncio.Future[None] | None = None

    @property
    def id(self) -> str:
        """The event id as text, for `reknit trail`."""
        return f"{self.source.hex()}:1"

    @property
    def sent_bytes(self) -> int:
        """How many bytes were sent so far."""
        return self._sent

    # -- writing

    async def __aenter__(self) -> OutgoingStream:
        await self._wait_for_path()
        if not self._connection.is_up:
            raise NotConnected(self._connection.url, "the connection is lost and being reopened")
        columns: dict[str, list[Any]] = {"headers": [self._headers]} if self._headers else {}
        if self._size is not None:
            columns[SIZE_COLUMN] = [self._size]
        now_us = environment.time_us()
        stub = Batch.build(
            self.source, self.topic, 1, [b""], now_us, columns=columns, flags=FLAG_STREAM, **self._fields
        )
        self._is_open = True
        self._router.add_stream(self.source, self)
        self._connection.send(Begin(self.source, self.topic, self._is_resent, bytes(stub.data)))
        return self

    async def write(self, piece: Buffer | str) -> None:
        """Send one more piece; returns when there is room for the next. Raises if the event has an outcome already."""
        rest = memoryview(piece.encode() if isinstance(piece, str) else piece).cast("B")
        if not self._is_open:
            raise Closed(f"the stream on {self.topic!r}")
        if self._size is not None and self._sent + len(rest) > self._size:
            raise LocalError(
                f"the stream on {self.topic!r} has a size of {self._size} bytes, and this piece exceeds it"
            )
        while rest:
            size = min(PIECE_BYTES, len(rest), self._room - self._sent)
            self._check()
            if size <= 0:
                await self._wait()
                continue
            self._send(bytes(rest[:size]), is_last=False)
            rest = rest[size:]

    def _send(self, data: bytes, is_last: bool) -> None:
        self._connection.send(Piece(0, self.source, self._sent, data, is_last))
        self._sent += len(data)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    # -- ending

    async def abort(self, text: str = GAVE_UP) -> None:
        """Give the event up: no subscriber takes it. Nothing more can be written."""
        if self._is_open:
            self._close()
            self._connection.send(Abort(0, self.source, text))

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None:
        if not self._is_open:
            return
        if kind is not None:
            await self.abort()
            return
        if self._size is not None and self._sent < self._size and self._error is None:
            await self.abort()
            raise LocalError(
                f"the stream on {self.topic!r} ended after {self._sent} of {self._size} bytes; write all of them"
            )
        try:
            if self._error is None:
                self._send(b"", is_last=True)
            while self.outcome is None and self._error is None:
                await self._wait()
        except asyncio.CancelledError:
            await self.abort()
            raise
        self._close()
        self._check()

    def _close(self) -> None:
        self._is_open = False
        self._router.remove_stream(self.source)

    # -- called by the router

    def receive(self, message: Room | Told) -> None:
        """The node has room for more, or reports the outcome."""
        if isinstance(message, Room):
            self._room = max(self._room, message.total)
        else:
            for fate in message.rows:
                if fate.outcome != Outcome.RECEIVED:
                    self._resolve(fate)
        resolve(self._wake)

    def _resolve(self, fate: RangeOutcome) -> None:
        self.outcome = Outcome(fate.outcome)
        if self.outcome in ERRORS:
            self._error = undelivered(self.topic, self.source, msgspec.structs.replace(fate, start=1, stop=2))

    def lost(self) -> None:
        """The connection broke. The node gives up a stream that it has not received to its end."""
        self._resolve(RangeOutcome(1, 2, Outcome.MODIFIED, Code.UNKNOWN, LOST, attempts=0))
        resolve(self._wake)


class IncomingStream:
    """The pieces of one event, as they arrive. They are read once, in order."""

    def __init__(
        self,
        connection: NodeConnection,
        sub: int,
        batch: Batch,
        *,
        window_bytes: int,
        on_begin: Callable[[], object],
    ) -> None:
        self._connection = connection
        self._sub = sub
        self._batch = batch
        self._window_bytes = window_bytes
        self._on_begin = on_begin
        self._pieces: deque[bytes] = deque()
        self._got = self._taken = self._granted = 0
        self._is_whole = False
        self._error: ReknitError | None = None
        self._wake: asyncio.Future[None] | None = None
        self.is_begun = False
        """Whether the application has asked for a piece."""

    @property
    def is_read(self) -> bool:
        """Whether the application has every piece."""
        return self._is_whole and not self._pieces and self._error is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.is_begun:
            raise LocalError(f"the pieces of {self._batch!r} were read before; they can be read only once")
        self.is_begun = True
        self._on_begin()
        self._grant()
        while True:
            while not (self._pieces or self._is_whole or self._error):
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            if self._error is not None:
                raise self._error
            if not self._pieces:
                return
            piece = self._pieces.popleft()
            self._taken += len(piece)
            self._grant()
            yield piece

    def _grant(self) -> None:
        """Grant room for more when half of the window is free."""
        total = self._taken + self._window_bytes
        if not self._is_whole and 2 * (total - self._granted) >= self._window_bytes:
            self._granted = total
            self._connection.send(Room(self._sub, self._batch.source, total))

    # -- called by the subscription

    def receive(self, message: Piece | Abort) -> None:
        """A piece came, or the writer aborted the event."""
        if isinstance(message, Abort):
            self.fail(message.text)
        elif message.offset != self._got:
            self.fail(f"the node sent a piece at {message.offset}, not at {self._got}")
        else:
            self._got += len(message.data)
            self._is_whole = message.is_last
            if message.data:
                self._pieces.append(message.data)
        resolve(self._wake)

    def fail(self, text: str) -> None:
        """No more pieces come. The pieces that came are not a whole event."""
        self._pieces.clear()
        self._error = Aborted(self._batch.topic, self._batch.source.hex(), text)
        resolve(self._wake)


class IncomingStreams:
    """The streams that a subscription has open, by their sources."""

    def __init__(self, connection: NodeConnection, sub: int, window_bytes: int) -> None:
        self._connection = connection
        self._sub = sub
        self._window_bytes = window_bytes
        self._open: dict[bytes, IncomingStream] = {}

    def open(self, batch: Batch, on_begin: Callable[[], object]) -> IncomingStream:
        """The batch is delivered to the application; its pieces come here."""
        stream = self._open[batch.source] = IncomingStream(
            self._connection, self._sub, batch, window_bytes=self._window_bytes, on_begin=on_begin
        )
        return stream

    def receive(self, message: Piece | Abort) -> None:
        """A piece of a stream came, or its writer aborted it."""
        stream = self._open.get(message.source)
        if stream is not None:
            stream.receive(message)

    def unread(self, batch: Batch) -> IncomingStream | None:
        """The batch's stream, if the application has not read it to its end."""
        stream = self._open.get(batch.source) if batch.stream is not None else None
        return None if stream is None or stream.is_read else stream

    def end(self, batch: Batch, outcome: Outcome) -> None:
        """The stream has an outcome. Raises if it is accepted before it was read to its end."""
        if outcome is Outcome.ACCEPTED and self.unread(batch) is not None:
            raise LocalError(f"{batch!r} was not read to its end: read `event.pieces()`, or release it")
        self._open.pop(batch.source, None)

    def fail(self, text: str) -> None:
        """No more pieces come for any of them."""
        for stream in self._open.values():
            stream.fail(text)
        self._open.clear()
