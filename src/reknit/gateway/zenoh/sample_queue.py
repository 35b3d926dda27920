"""Samples on their way from the session's readers to the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final

from reknit.gateway.zenoh.samples import LastNumber, ZenohSample, merge

PENDING_MAX: Final = 100_000
"""How many samples may wait. Past it, Zenoh waits or drops samples, as their publishers chose."""

Taken = ZenohSample | LastNumber


class SampleQueue:
    """Filled by the session's readers, emptied on the event loop.

    While the history of a key is being fetched, new samples of that key are held, so that the history comes first.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._pending: list[Taken] = []
        self._held: dict[str, list[ZenohSample]] = {}
        """Samples of keys whose history is being fetched."""
        self._fetches: dict[str, int] = {}
        """How many publishers' histories of a key are being fetched."""
        self._has_samples = asyncio.Event()
        self._is_closed = False

    # -- on readers' threads

    def put(self, sample: ZenohSample) -> None:
        """Queue a sample. Blocks while too many wait."""
        with self._lock:
            while len(self._held.get(sample.key, ())) >= PENDING_MAX and not self._is_closed:
                self._lock.wait(1.0)
            if sample.key in self._held:
                self._held[sample.key].append(sample)
                return
        self.add([sample])

    def told(self, number: LastNumber) -> None:
        """Queue a heartbeat behind the samples before it. While history is being fetched there is no need for it."""
        with self._lock:
            if number.key in self._held or len(self._pending) >= PENDING_MAX:
                return
        self.add([number])

    def add(self, samples: list[ZenohSample] | list[LastNumber]) -> None:
        """Queue samples, in order. Blocks while too many wait."""
        with self._lock:
            while len(self._pending) >= PENDING_MAX and not self._is_closed:
                self._lock.wait(1.0)
            if self._is_closed:
                return
            was_empty = not self._pending
            self._pending += samples
        if was_empty and samples:
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._has_samples.set)

    def begin_history(self, key: str) -> None:
        """Hold new samples of a key until its history is there."""
        with self._lock:
            self._held.setdefault(key, [])
            self._fetches[key] = self._fetches.get(key, 0) + 1

    def end_history(self, key: str, samples: list[ZenohSample]) -> None:
        """Queue the history of a key, then the samples that were held."""
        with self._lock:
            self._held[key] = samples + self._held[key]
            self._fetches[key] -= 1
            ready = merge(self._held.pop(key)) if not self._fetches[key] else []
            self._lock.notify_all()
        self.add(ready)

    # -- on the event loop

    async def take(self) -> list[Taken]:
        """All that is queued, as soon as there is something."""
        await self._has_samples.wait()
        self._has_samples.clear()
        with self._lock:
            taken, self._pending = self._pending, []
            self._lock.notify_all()
        return taken

    def close(self) -> None:
        """Drop what is queued, and queue nothing more. No thread blocks after this."""
        with self._lock:
            self._is_closed = True
            self._pending = []
            self._lock.notify_all()
