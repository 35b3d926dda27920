"""Samples on their way from the session's readers to the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final

from reknit import environment
from reknit.gateway.zenoh.samples import LastNumber, ZenohSample, merge

PENDING_MAX: Final = 100_000
"""How many samples may wait. Past it, Zenoh waits or drops samples, as their publishers chose."""
PENDING_BYTES_MAX: Final = 64 << 20
"""The same in bytes, apart from the last one; and as much again may be held."""

HOLD_S_MAX: Final = 15.0
"""How long samples of a key are held for its history, so that publishers that do not answer hold up nobody for long."""

Taken = ZenohSample | LastNumber


class _Hold:
    """The samples of a key whose history is being fetched."""

    __slots__ = ("fetches", "samples", "since")

    def __init__(self) -> None:
        self.samples: list[ZenohSample] = []
        self.fetches = 0
        """How many publishers' histories of the key are being fetched."""
        self.since = environment.monotonic()


class SampleQueue:
    """Filled by the session's readers, emptied on the event loop.

    While the history of a key is being fetched, new samples of that key are held, so that the history comes first.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._pending: list[Taken] = []
        self._holds: dict[str, _Hold] = {}
        """By key."""
        self._held = 0
        """How many samples are held."""
        self._held_bytes = self._pending_bytes = 0
        self._has_samples = asyncio.Event()
        self._is_closed = False

    # -- on readers' threads

    def put(self, sample: ZenohSample) -> None:
        """Queue a sample. Blocks while too many wait."""
        with self._lock:
            hold = self._holds.get(sample.key)
            if hold is not None and self._may_hold(hold):
                hold.samples.append(sample)
                self._held += 1
                self._held_bytes += sample.size
                return
            before = self._release(sample.key)
        self.add([*before, sample])

    def _may_hold(self, hold: _Hold) -> bool:
        is_room = self._held < PENDING_MAX and self._held_bytes < PENDING_BYTES_MAX
        return is_room and environment.monotonic() - hold.since < HOLD_S_MAX

    def _release(self, key: str) -> list[ZenohSample]:
        """The samples of a key that were held, which are held no longer."""
        hold = self._holds.pop(key, None)
        if hold is None:
            return []
        self._held -= len(hold.samples)
        self._held_bytes -= sum(one.size for one in hold.samples)
        return merge(hold.samples)

    def told(self, number: LastNumber) -> None:
        """Queue a heartbeat behind the samples before it. While history is being fetched there is no need for it."""
        with self._lock:
            if number.key in self._holds or self._is_full:
                return
        self.add([number])

    def add(self, samples: list[ZenohSample] | list[LastNumber]) -> None:
        """Queue samples, in order. Blocks while too many wait."""
        with self._lock:
            while self._is_full and not self._is_closed:
                self._lock.wait(1.0)
            if self._is_closed:
                return
            was_empty = not self._pending
            self._pending += samples
            self._pending_bytes += sum(one.size for one in samples if isinstance(one, ZenohSample))
        if was_empty and samples:
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._has_samples.set)

    @property
    def _is_full(self) -> bool:
        return len(self._pending) >= PENDING_MAX or self._pending_bytes >= PENDING_BYTES_MAX

    def begin_history(self, key: str) -> None:
        """Hold new samples of a key until its history is there."""
        with self._lock:
            self._holds.setdefault(key, _Hold()).fetches += 1

    def end_history(self, key: str, samples: list[ZenohSample]) -> None:
        """Queue the history of a key, then the samples that were held. If it took too long, they were queued before."""
        with self._lock:
            hold = self._holds.get(key)
            if hold is not None:
                hold.samples, hold.fetches = samples + hold.samples, hold.fetches - 1
                self._held += len(samples)
                self._held_bytes += sum(one.size for one in samples)
                samples = [] if hold.fetches else self._release(key)
        self.add(samples)

    # -- on the event loop

    async def take(self) -> list[Taken]:
        """All that is queued, as soon as there is something."""
        await self._has_samples.wait()
        self._has_samples.clear()
        with self._lock:
            taken, self._pending, self._pending_bytes = self._pending, [], 0
            self._lock.notify_all()
        return taken

    def close(self) -> None:
        """Drop what is queued, and queue nothing more. No thread blocks after this."""
        with self._lock:
            self._is_closed = True
            self._pending = []
            self._lock.notify_all()
