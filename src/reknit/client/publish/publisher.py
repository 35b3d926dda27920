"""Publishing on one topic: single calls become batches, and every event is kept or its caller is told.

The hot path is `send`: append to a list, count bytes, and only once per batch do anything more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from reknit.batch import PRIORITY_DEFAULT, total
from reknit.client.recovery.caches import Recoverable
from reknit.client.streams import OutgoingStream
from reknit.connection.futures import fail_all, resolve, resolve_all
from reknit.errors import Closed, Full, LocalError, Refused
from reknit.frame import Buffer
from reknit.protocol.publish import publisher as machines
from reknit.protocol.publish.heartbeat import Heartbeats
from reknit.protocol.recovery.cache import MemoryCache
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat, Offer

if TYPE_CHECKING:
    from reknit.client.session import Session

Kept = asyncio.Future[None]


class Publisher:
    """One source on one topic. Made by `session.publisher(topic)`.

    `await publisher.send(payload)` returns as soon as there is room, `await publisher.flush()` when everything so far
    is kept. `await publisher.publish(payload)` returns when that event is kept.
    """

    _is_resent = False
    """Whether what a subscriber releases goes to the next one."""

    def __init__(
        self,
        session: Session,
        source: bytes,
        topic: str,
        lasting: bool,
        wait: bool = True,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        recovery: Recoverable | None = None,
    ) -> None:
        recovery = recovery or Recoverable()
        self._session = session
        self._machine = machines.Publisher(source, topic, lasting, recovery.stored_by)
        self._offer = Offer(topic, source)
        self._cache = MemoryCache(Pattern(topic), recovery.bounds) if recovery.bounds is not None else None
        self._beats = Heartbeats(topic, source, recovery.heartbeat_s, recovery.is_periodic)
        self._beats_on = recovery.heartbeat_s > 0
        self._resends = recovery.stored_by > 1
        self._timer: asyncio.TimerHandle | None = None
        self._limits = session.config.limits
        self._wait = wait
        self._fields: dict[str, Any] = {"ttl_ms": ttl_ms, "priority": priority}
        self._loop = asyncio.get_running_loop()
        self._blocks: list[bytes] = []
        """The payloads of whole calls, joined; older than those that came one by one."""
        self._lengths: list[int] = []
        """Of the payloads in the blocks."""
        self._payloads: list[Buffer] = []
        self._bytes = 0
        """What gathered, in blocks or one by one, and is not in a batch yet."""
        self._payload_bytes_max = self._limits.payload_bytes_max
        self._batch_bytes = self._limits.batch_bytes
        self._events_max = self._limits.batch_events_max
        self._window = self._limits.publish_window_bytes
        self._is_scheduled = False
        self._full_at: int | None = None
        """How many events were not kept when the window became full; what was taken since waits for room."""
        self._kept: list[Kept] = []
        """The futures of the events that are not in a batch yet: one a call, so that who gives up waiting is alone."""
        self._waiting: deque[tuple[int, list[Kept]]] = deque()
        """(stop, futures): they are done when everything before `stop` is kept."""
        self._room: deque[Kept] = deque()
        self._done: Kept = self._loop.create_future()
        self._done.set_result(None)
        self._failed: LocalError | Refused | None = None
        self._numbered: Kept | None = None

        if self._cache is not None:
            session.switchboard.keep(self._cache, self._offer)

    @property
    def source(self) -> bytes:
        return self._machine.source

    @property
    def topic(self) -> str:
        return self._machine.topic

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets."""
        return self._machine.next_seq + len(self._lengths) + len(self._payloads)

    @property
    def unkept(self) -> int:
        """How many events are not known to be kept yet."""
        unacked = self._machine.unacked
        return self.next_seq - (unacked[0].first if unacked else self._machine.next_seq)

    async def resume(self) -> int:
        """The seq that the next event gets, once the node has told how far this source has got.

        A program that numbers its own work by seq goes on there after a crash, and publishes everything once.
        """
        if not self._machine.numbered and self._failed is None:
            self._numbered = self._numbered or self._loop.create_future()
            await asyncio.shield(self._numbered)
        return self.next_seq

    # -- publishing

    def send(self, payload: bytes) -> Kept:
        """Publish one event; the awaitable is done when there is room for more. Errors come from `flush`."""
        size = len(payload)
        if size > self._payload_bytes_max or type(payload) is not bytes or self._failed is not None:
            payload = self._check(payload)
        self._payloads.append(payload)
        self._bytes += size + 4
        if self._bytes >= self._batch_bytes:
            return self._send_full()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return self._done

    def publish(self, payload: Buffer | str) -> Kept:
        """Publish one event; the awaitable is done when it is kept."""
        self._admit()
        payload = self._check(payload)
        self._payloads.append(payload)
        self._bytes += len(payload) + 4
        return self._gathered()

    def publish_many(self, payloads: Iterable[Buffer | str], keys: Sequence[str] | None = None) -> Kept:
        """Publish many events; done when all of them are kept. They are one batch, if the limits allow.

        Calls in one turn of the loop gather, as single events do, and then share a batch.
        `keys`, one for each: on a topic with `order = "key"`, events of a key wait for each other and for no others.
        """
        if keys is not None:
            return self._publish_keyed([self._check(payload) for payload in payloads], keys)
        many = cast(list[Buffer], payloads if type(payloads) is list else list(payloads))
        if not many:
            return self._done
        self._admit()
        lengths = list(map(len, many))
        size = total(lengths)
        if not self._can_join(lengths, size):
            return self._gather_each(many)
        try:
            block = b"".join(many)
        except TypeError:  # texts among them
            return self._gather_each(many)
        if len(block) != size:  # items larger than a byte
            return self._gather_each(many)
        size += 4 * len(many)
        events = len(self._lengths) + len(many)
        if self._payloads or self._bytes + size > self._batch_bytes or events > self._events_max:
            self._cut()
        self._blocks.append(block)
        self._lengths += lengths
        self._bytes += size
        return self._gathered()

    def stream(self, headers: dict[str, str] | None = None, size: int | None = None) -> OutgoingStream:
        """One event, written in pieces while it is on its way already: `async with publisher.stream() as out`.

        For topics that are balanced or closest. It is not kept: who takes it says what became of it, and leaving the
        `async with` raises `Released`, `Rejected` or `Modified` if that is not ACCEPTED. An AMQP client gets a long one
        only if its `size` in bytes is said here.
        """
        path = (self._is_resent, self._path_there)
        return OutgoingStream(self._session, self.topic, *path, self._fields, headers or {}, size)

    async def _path_there(self) -> None:
        """Return when somebody is there to take events, as far as that is known here."""
        if self._failed is not None:
            raise self._failed

    def _publish_keyed(self, payloads: list[Buffer], keys: Sequence[str]) -> Kept:
        if len(keys) != len(payloads):
            raise LocalError(f"{len(payloads)} payloads need as many keys, not {len(keys)}")
        if not self._machine.numbered:
            raise LocalError("a publisher in a named session needs `await publisher.resume()` before keys")
        self._admit()
        self._cut()
        at = 0
        for part in self._parts(payloads, sum(map(len, payloads)) + 4 * len(payloads)):
            self._put(part, columns={"key": list(keys[at : at + len(part)])})
            at += len(part)
        kept: Kept = self._loop.create_future()
        self._sent([kept])
        return kept

    def _can_join(self, lengths: list[int], size: int) -> bool:
        """Whether payloads of these lengths are part of a batch as they are."""
        if not self._machine.numbered or self._failed is not None:
            return False
        count, bytes_max = len(lengths), self._limits.frame_bytes_max // 2
        fits = count <= self._events_max and size + 4 * count <= bytes_max
        return fits and (size <= self._payload_bytes_max or max(lengths) <= self._payload_bytes_max)

    def _gather_each(self, payloads: Iterable[Buffer | str]) -> Kept:
        """Look at each of them, and put them behind those that wait."""
        checked = [self._check(payload) for payload in payloads]
        self._payloads += checked
        self._bytes += sum(map(len, checked)) + 4 * len(checked)
        return self._gathered()

    def _gathered(self) -> Kept:
        """Something more waits to become a batch: now if that is large enough, or when the loop has come round."""
        kept = self._future()
        if self._bytes >= self._batch_bytes:
            self._cut()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return kept

    def _future(self) -> Kept:
        """Done when everything is kept that is not in a batch yet."""
        kept: Kept = self._loop.create_future()
        self._kept.append(kept)
        return kept

    async def flush(self) -> None:
        """Return when everything published so far is kept. Raises what became of it otherwise."""
        self._cut()
        if self._failed is not None:
            raise self._failed
        if self._bytes:
            await self._future()
        elif self._machine.unacked:
            kept: Kept = self._loop.create_future()
            self._waiting.append((self._machine.next_seq, [kept]))
            await kept

    # -- batches

    def _check(self, payload: Buffer | str) -> bytes:
        if self._failed is not None:
            raise self._failed
        if isinstance(payload, str):
            payload = payload.encode()
        elif not isinstance(payload, bytes):
            payload = bytes(payload)
        if len(payload) > self._payload_bytes_max:
            text = f"a payload of {len(payload)} bytes on {self.topic!r}"
            raise Full(text, "limits.payload_bytes_max")
        return payload

    def _admit(self) -> None:
        """At the limit, publishing waits by its awaitable; calls that wait are bounded too, or refused by choice."""
        if not self._is_window_full:
            self._full_at = None
            return
        if not self._wait:
            raise self._window_full()
        if self._full_at is None:
            self._full_at = self.unkept
        waiting = self.unkept - self._full_at
        if waiting >= self._limits.publish_waiting_max:
            raise Full(f"{waiting} events wait for room", "limits.publish_waiting_max")

    @property
    def _is_window_full(self) -> bool:
        return self._machine.unacked_bytes + self._bytes >= self._window

    def _window_full(self) -> Full:
        text = f"{self._machine.unacked_bytes} bytes are not acknowledged yet"
        return Full(text, "limits.publish_window_bytes")

    def _parts(self, payloads: list[Buffer], size: int) -> Iterable[list[Buffer]]:
        """Cut a long list so that every batch is within the limits of events and bytes."""
        count_max, bytes_max = self._events_max, self._limits.frame_bytes_max // 2
        if len(payloads) <= count_max and size <= bytes_max:
            yield payloads
            return
        part: list[Buffer] = []
        size = 0
        for payload in payloads:
            if part and (size + len(payload) + 4 > bytes_max or len(part) >= count_max):
                yield part
                part, size = [], 0
            part.append(payload)
            size += len(payload) + 4
        yield part

    def _turn(self) -> None:
        """The loop came round: what gathered since becomes a batch."""
        self._is_scheduled = False
        self._cut()

    def _send_full(self) -> Kept:
        """A batch is full: send it, and let the loop come round once."""
        if not self._wait and self._is_window_full:
            self._bytes -= len(self._payloads.pop()) + 4  # whoever is told so keeps the event
            raise self._window_full()
        if self._machine.numbered:
            self._cut()
        turn: Kept = self._loop.create_future()
        if self._is_window_full:
            self._room.append(turn)
        else:
            self._loop.call_soon(resolve, turn)
        return turn

    def _cut(self) -> None:
        """Make batches of what has gathered and hand them to the machine."""
        if not self._bytes or not self._machine.numbered:
            return
        blocks, lengths, payloads, size = self._blocks, self._lengths, self._payloads, self._bytes
        kept = self._kept
        self._empty()
        if blocks:
            self._put(blocks, lengths)
        if payloads:
            for part in self._parts(payloads, size):
                self._put(part)
        self._sent(kept)

    def _empty(self) -> None:
        self._blocks, self._lengths, self._payloads, self._bytes, self._kept = [], [], [], 0, []

    def _put(self, payloads: Sequence[Buffer], lengths: list[int] | None = None, **more: Any) -> None:
        now_us = time.time_ns() // 1000
        batch = self._machine.put(payloads, now_us, lengths=lengths, **self._fields, **more)
        if self._cache is not None:
            self._cache.put(batch, now_us)

    def _sent(self, kept: list[Kept]) -> None:
        """Batches went to the machine: see to heartbeats, and to those who wait for them to be kept."""
        if self._beats_on or self._resends:
            self._beats.published(self._machine.next_seq - 1, self._loop.time())
            self._set_timer()
        if kept:
            self._waiting.append((self._machine.next_seq, kept))
        self._perform()

    # -- the session's side

    def receive(self, message: machines.Input) -> None:
        """Something for this source came in, or the connection changed."""
        self._machine.receive(message, "node", self._loop.time())
        self._perform()
        if isinstance(message, machines.Connected) and self._machine.next_seq > 1:
            self._reconnected()

    def _reconnected(self) -> None:
        """Whoever lost a tail with the connection hears now how far this source has got."""
        if self._cache is not None or self._beats_on:
            self._session.link.send(Heartbeat(self.topic, self.source, self._machine.next_seq - 1))

    def _set_timer(self) -> None:
        """Be there when a heartbeat is due, or a resend."""
        if self._timer is None and self._failed is None:
            due = [self._machine.next_deadline(), self._beats.next_deadline() if self._beats_on else None]
            wait_s = machines.RESEND_S if self._resends and self._machine.unacked else None
            at = min((at for at in due if at is not None), default=None)
            if at is not None or wait_s is not None:
                at = self._loop.time() + (wait_s or 0.0) if at is None else at
                self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._machine.tick(now)
        self._perform()
        if self._beats_on and self._machine.next_seq > 1:
            self._session.link.send(*self._beats.tick(now))
        self._set_timer()

    def _perform(self) -> None:
        buffers: list[Buffer] = []
        for effect in self._machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    buffers.append(data)
                case machines.SendMessage(message=message):
                    self._session.link.send(message)
                case machines.Confirm(stop=stop):
                    self._confirm(stop)
                case machines.Numbered():
                    resolve(self._numbered)
                    self._loop.call_soon(self._turn)
                case machines.Refused(code=code, text=text):
                    self.fail(Refused(code, text))
        if buffers:
            self._session.link.send_buffers(buffers)

    def _confirm(self, stop: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= stop:
            resolve_all(waiting.popleft()[1])
        if self._room and self._machine.unacked_bytes < self._window:
            resolve_all(self._room)
            self._room.clear()

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be published here: everyone who waits is told."""
        self._failed = error
        if self._timer is not None:
            self._timer.cancel()
        futures = [kept for _, group in self._waiting for kept in group] + [*self._room, *self._kept]
        futures += [self._numbered] if self._numbered is not None else []
        self._waiting.clear()
        self._room.clear()
        self._empty()
        fail_all(futures, error)

    async def close(self) -> None:
        """Return when everything is kept; afterwards nothing can be published."""
        try:
            await self.flush()
        finally:
            self._session.forget(self)
            self._session.switchboard.keep_no_more(self._offer)
            self.fail(Closed(f"the publisher on {self.topic!r}"))

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
