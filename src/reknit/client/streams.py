"""Streams, as applications see them: an event that is written in pieces, and one that is read in pieces.

Neither side ever has more of it in memory than `anycast.stream_window_bytes`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from reknit.batch import SOURCE_BYTES, Batch
from reknit.connection.futures import resolve
from reknit.errors import Aborted, Closed, LocalError, Modified, NotConnected, Rejected, ReknitError, Released
from reknit.event import FLAG_STREAM, SIZE_COLUMN
from reknit.frame import Buffer
from reknit.outcome import Code, Outcome
from reknit.protocol.streams.inputs import PIECE_BYTES
from reknit.wire.outcomes import Fate, Told
from reknit.wire.streams import Abort, Begin, Piece, Room

if TYPE_CHECKING:
    from reknit.client.session import Session

GAVE_UP: Final = "its publisher gave it up"
LOST: Final = "the connection was lost with it on the way: whether it was processed is not known"
_ERRORS: Final = {Outcome.RELEASED: Released, Outcome.REJECTED: Rejected, Outcome.MODIFIED: Modified}


class OutgoingStream:
    """Made by `publisher.stream()`; open while in its `async with`.

    Leaving it ends the event and waits for its outcome: it raises `Released`, `Rejected` or `Modified` if that is not
    ACCEPTED. Leaving it through an exception aborts the event: whoever has a part of it is told, and nobody takes it.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        is_resent: bool,
        path_there: Callable[[], Awaitable[None]],
        fields: dict[str, Any],
        headers: dict[str, str],
        size: int | None = None,
    ) -> None:
        self.source = secrets.token_bytes(SOURCE_BYTES)
        self.topic = topic
        self.outcome: Outcome | None = None
        """Known when it is left."""
        self._session = session
        self._is_resent = is_resent
        self._path_there = path_there
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
        """How much of it went out so far."""
        return self._sent

    # -- writing

    async def __aenter__(self) -> OutgoingStream:
        await self._path_there()
        if not self._session.link.is_up:
            raise NotConnected(self._session.url, "the connection is being opened again")
        columns: dict[str, list[Any]] = {"headers": [self._headers]} if self._headers else {}
        if self._size is not None:
            columns[SIZE_COLUMN] = [self._size]
        now_us = time.time_ns() // 1000
        stub = Batch.build(
            self.source, self.topic, 1, [b""], now_us, columns=columns, flags=FLAG_STREAM, **self._fields
        )
        self._is_open = True
        self._session.switchboard.streams[self.source] = self
        self._session.link.send(Begin(self.source, self.topic, self._is_resent, bytes(stub.data)))
        return self

    async def write(self, piece: Buffer | str) -> None:
        """Send more of it; returns when there is room for the next. Raises what has become of the event meanwhile."""
        rest = memoryview(piece.encode() if isinstance(piece, str) else piece).cast("B")
        if not self._is_open:
            raise Closed(f"the stream on {self.topic!r}")
        if self._size is not None and self._sent + len(rest) > self._size:
            raise LocalError(f"the stream on {self.topic!r} was to have {self._size} bytes, not more")
        while rest:
            size = min(PIECE_BYTES, len(rest), self._room - self._sent)
            self._check()
            if size <= 0:
                await self._wait()
                continue
            self._say(bytes(rest[:size]), is_last=False)
            rest = rest[size:]

    def _say(self, data: bytes, is_last: bool) -> None:
        self._session.link.send(Piece(0, self.source, self._sent, data, is_last))
        self._sent += len(data)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    # -- its end

    async def abort(self, text: str = GAVE_UP) -> None:
        """Give it up: it never was an event. Nothing more can be written."""
        if self._is_open:
            self._close()
            self._session.link.send(Abort(0, self.source, text))

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None:
        if not self._is_open:
            return
        if kind is not None:
            await self.abort()
            return
        if self._size is not None and self._sent < self._size and self._error is None:
            await self.abort()
            raise LocalError(f"the stream on {self.topic!r} has {self._sent} bytes of {self._size}")
        try:
            if self._error is None:
                self._say(b"", is_last=True)
            while self.outcome is None and self._error is None:
                await self._wait()
        except asyncio.CancelledError:
            await self.abort()
            raise
        self._close()
        self._check()

    def _close(self) -> None:
        self._is_open = False
        self._session.switchboard.streams.pop(self.source, None)

    # -- the session's side

    def receive(self, message: Room | Told) -> None:
        """The node has room, or tells what became of it."""
        if isinstance(message, Room):
            self._room = max(self._room, message.total)
        else:
            for fate in message.rows:
                if fate.outcome != Outcome.RECEIVED:
                    self._resolve(fate)
        resolve(self._wake)

    def _resolve(self, fate: Fate) -> None:
        self.outcome = Outcome(fate.outcome)
        error = _ERRORS.get(self.outcome)
        if error is not None:
            where = (fate.text, fate.code, fate.node, fate.path, fate.attempts)
            self._error = error(self.topic, self.source.hex(), 1, 2, *where)

    def lost(self) -> None:
        """The connection is gone, and the node gives up what was not whole there."""
        self._resolve(Fate(1, 2, Outcome.MODIFIED, Code.UNKNOWN, LOST, attempts=0))
        resolve(self._wake)


class IncomingStream:
    """The pieces of one event, as they come. Read once, in order."""

    def __init__(self, session: Session, sub: int, batch: Batch, on_begin: Callable[[], object]) -> None:
        self._session = session
        self._sub = sub
        self._batch = batch
        self._on_begin = on_begin
        self._pieces: deque[bytes] = deque()
        self._got = self._taken = self._granted = 0
        self._is_whole = False
        self._error: ReknitError | None = None
        self._wake: asyncio.Future[None] | None = None
        self.is_begun = False
        """Whether the application asked for a piece."""

    @property
    def is_read(self) -> bool:
        """Whether the application has all of it."""
        return self._is_whole and not self._pieces and self._error is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.is_begun:
            raise LocalError(f"the pieces of {self._batch!r} were read before: they come once")
        self.is_begun = True
        self._on_begin()
        self._ask()
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
            self._ask()
            yield piece

    def _ask(self) -> None:
        """Let more come when half of the window is free."""
        window = self._session.config.anycast.stream_window_bytes
        total = self._taken + window
        if not self._is_whole and 2 * (total - self._granted) >= window:
            self._granted = total
            self._session.link.send(Room(self._sub, self._batch.source, total))

    # -- the subscription's side

    def receive(self, message: Piece | Abort) -> None:
        """More of it, or word that no more comes."""
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
        """Nothing more comes of it: what came is not the event."""
        self._pieces.clear()
        self._error = Aborted(self._batch.topic, self._batch.source.hex(), text)
        resolve(self._wake)


class IncomingStreams:
    """Those that a subscription has open, by their sources."""

    def __init__(self, session: Session, sub: int) -> None:
        self._session = session
        self._sub = sub
        self._open: dict[bytes, IncomingStream] = {}

    def open(self, batch: Batch, on_begin: Callable[[], object]) -> IncomingStream:
        """The stream of a batch that is delivered to the application; its chunks arrive here."""
        stream = self._open[batch.source] = IncomingStream(self._session, self._sub, batch, on_begin)
        return stream

    def receive(self, message: Piece | Abort) -> None:
        """More of a stream, or word that no more comes."""
        stream = self._open.get(message.source)
        if stream is not None:
            stream.receive(message)

    def unread(self, batch: Batch) -> IncomingStream | None:
        """The batch's stream, if the application has not read all of it."""
        stream = self._open.get(batch.source) if batch.stream is not None else None
        return None if stream is None or stream.is_read else stream

    def end(self, batch: Batch, outcome: Outcome) -> None:
        """It has an outcome: a part of it is never taken for the whole."""
        if outcome is Outcome.ACCEPTED and self.unread(batch) is not None:
            raise LocalError(f"{batch!r} was not read to its end: read `event.pieces()`, or release it")
        self._open.pop(batch.source, None)

    def fail(self, text: str) -> None:
        """Nothing more comes of any of them."""
        for stream in self._open.values():
            stream.fail(text)
        self._open.clear()
