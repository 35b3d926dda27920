"""Samples on their way from Zenoh's threads to the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from reknit.gateway.zenoh.samples import ZenohSample, merge

PENDING_MAX = 100_000
"""How many samples may wait. Past it, Zenoh waits or drops samples, as their publishers chose."""


class SampleQueue:
    """Filled by Zenoh's threads, emptied on the event loop.

    While the history of a key is being fetched, new samples of that key are held, so that the history comes first.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._pending: list[ZenohSample] = []
        self._held: dict[str, list[ZenohSample]] = {}
        """Samples of keys whose history is being fetched."""
        self._fetches: dict[str, int] = {}
        """How many publishers' histories of a key are being fetched."""
        self._has_samples = asyncio.Event()
        self._is_closed = False

    # -- on Zenoh's threads

    def put(self, sample: ZenohSample) -> None:
        """Queue a sample. Blocks while too many wait."""
        with self._lock:
            if sample.key in self._held:
                self._held[sample.key].append(sample)
                return
        self.add([sample])

    def add(self, samples: list[ZenohSample]) -> None:
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
        self.add(ready)

    # -- on the event loop

    async def take(self) -> list[ZenohSample]:
        """All queued samples, as soon as there are some."""
        await self._has_samples.wait()
        self._has_samples.clear()
        with self._lock:
            samples, self._pending = self._pending, []
            self._lock.notify_all()
        return samples

    def close(self) -> None:
        """Drop what is queued, and queue nothing more. No thread blocks after this."""
        with self._lock:
            self._is_closed = True
            self._pending = []
            self._lock.notify_all()
