"""Publishing from threads: events gather here until the loop takes all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.blocking.streams import SyncStream
from reknit.client.publish.batching import LENGTH_BYTES, check_payload, check_payloads
from reknit.client.publish.event_fields import Headers
from reknit.client.publish.publisher import Publisher
from reknit.config import LimitSettings
from reknit.connection.publish_driver import StoredFuture
from reknit.errors import ReknitError
from reknit.frame import Buffer
from reknit.outcome import Outcome


class SyncPublisher:
    """One source on one topic. Made by `session.publisher(topic)`; any number of threads may use it.

    `publish` returns when the event is stored. `send` returns as soon as there is room, `flush` when everything so far
    is stored: for many events that is the faster way.
    """

    def __init__(self, thread: LoopThread, publisher: Publisher, limits: LimitSettings) -> None:
        self._thread = thread
        self._publisher = publisher
        self._limits = limits
        self.is_closed = False
        self.is_heard = False
        """Whether a caller was told that events are not stored."""
        self._changed = threading.Condition()
        self._payloads: list[bytes] = []
        self._bytes = 0
        self._error: ReknitError | None = None
        self._unstored: deque[tuple[int, StoredFuture]] = deque()
        """The size of each call that the publisher has, and a future for its storage."""
        self._unstored_bytes = 0
        self._unstored_bytes_max = limits.publish_window_bytes // 2
        self._order = asyncio.Lock()
        self._pump_task: asyncio.Task[None] | None = None

    @property
    def source(self) -> bytes:
        return self._publisher.source

    @property
    def topic(self) -> str:
        return self._publisher.topic

    # -- called by threads

    def send(self, payload: Buffer | str) -> None:
        """Publish one event; returns when there is room for more. `flush` or the next `send` raises errors."""
        checked = self._checked(payload)
        with self._changed:
            while self._bytes > self._limits.batch_bytes and self._error is None:
                self._changed.wait()
            if self._error is not None:
                self.is_heard = True
                raise self._error
            self._payloads.append(checked)
            self._bytes += len(checked) + LENGTH_BYTES
            is_first = len(self._payloads) == 1
        if is_first:
            self._thread.soon(self._wake)

    def publish(
        self,
        payload: Buffer | str,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
    ) -> Outcome | None:
        """Publish one event; returns when it is stored. With outcomes, gives its outcome. See `Publisher.publish`."""
        return self.publish_many((payload,), None if key is None else (key,), headers=headers, ttl_ms=ttl_ms)

    def publish_many(
        self,
        payloads: Iterable[Buffer | str],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> Outcome | None:
        """Publish many events; returns when all of them are stored. See `Publisher.publish_many`."""
        checked = [self._checked(payload) for payload in check_payloads(payloads)]
        if checked:
            fields = {"keys": keys, "headers": headers, "ttl_ms": ttl_ms}
            given = {name: value for name, value in fields.items() if value is not None}
            self._run(self._publish(checked, given))
        return None

    def stream(self, headers: dict[str, str] | None = None, size: int | None = None) -> SyncStream:
        """One event, written in pieces that are sent at once; see `Publisher.stream`."""
        return SyncStream(self._thread, self._publisher.stream(headers, size))

    def flush(self) -> None:
        """Return when everything sent so far is stored. Raises the error if it is not."""
        if not self.is_closed:
            self._run(self._flush())

    def close(self) -> None:
        """Return when everything is stored; afterwards nothing can be published."""
        try:
            self.flush()
        finally:
            self.is_closed = True
            self._thread.run(self._publisher.close())

    def __enter__(self) -> SyncPublisher:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _run(self, program: Coroutine[Any, Any, None]) -> None:
        try:
            self._thread.run(program)
        except ReknitError:
            self.is_heard = True
            raise

    def _checked(self, payload: Buffer | str) -> bytes:
        return check_payload(payload, self.topic, self._limits.payload_bytes_max)

    # -- called on the loop

    def _wake(self) -> None:
        if self._pump_task is None:
            self._pump_task = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        """Publish gathered events until there are none left."""
        try:
            while self._payloads:
                await self._put([])
        except ReknitError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._pump_task = None

    async def _put(self, more: list[bytes], **fields: Any) -> StoredFuture | None:
        """Publish gathered events, then `more`, when the window has room; returns a future for their storage."""
        async with self._order:
            await self._make_room()
            gathered = self._take()
            if not fields:
                return self._give(gathered + more) if gathered or more else None
            if gathered:
                self._give(gathered)
            return self._give(more, **fields)

    def _give(self, payloads: list[bytes], **fields: Any) -> StoredFuture:
        """Give events to the publisher of the loop."""
        stored = self._publisher.publish_many(payloads, **fields)
        size = sum(map(len, payloads))
        self._unstored.append((size, stored))
        self._unstored_bytes += size
        return stored

    def _take(self) -> list[bytes]:
        with self._changed:
            payloads, self._payloads, self._bytes = self._payloads, [], 0
            self._changed.notify_all()
        return payloads

    async def _make_room(self) -> None:
        """At half the window, wait for the oldest call: then the publisher itself never reaches its limit."""
        unstored = self._unstored
        while unstored and (unstored[0][1].done() or self._unstored_bytes >= self._unstored_bytes_max):
            size, stored = unstored.popleft()
            self._unstored_bytes -= size
            await asyncio.shield(stored)

    async def _publish(self, payloads: list[bytes], fields: dict[str, Any]) -> None:
        stored = await self._put(payloads, **fields)
        if stored is not None:
            await asyncio.shield(stored)

    async def _flush(self) -> None:
        await self._put([])
        if self._error is not None:
            raise self._error
        await self._publisher.flush()
