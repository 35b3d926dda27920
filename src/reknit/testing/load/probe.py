"""Measurements from outside: the latency of a light client, and the memory and open files of a process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from reknit.client.session import Session, connect


def memory_bytes(pid: int) -> int:
    """The memory of a process that is its own: not that of mapped files, which the system takes back when it likes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def open_files(pid: int) -> int:
    """How many files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def quantile(values: list[float], part: float) -> float:
    """A value that so large a part of the values does not exceed; 0 without values.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(len(ordered) * part + 0.5) - 1))] if ordered else 0.0


class LightClient:
    """Publishes one event at a time, and measures how long each takes to come back to it."""

    def __init__(self, session: Session, topic: str, every_s: float) -> None:
        self._session, self._topic, self._every_s = session, topic, every_s
        self.latencies_s: list[tuple[float, float]] = []
        """(when it was published, how long it took)."""
        self.published = 0
        self.missing = 0

    async def run(self) -> None:
        """Publish until cancelled. The topic's events come back in order, so a gap would be seen."""
        async with self._session.subscribe(self._topic) as events:
            reading = asyncio.create_task(self._read(events))
            try:
                while True:
                    self.published += 1
                    sent = b"%d %d" % (self.published, time.monotonic_ns())
                    await self._session.publish(self._topic, sent)
                    await asyncio.sleep(self._every_s)
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    async def _read(self, events: object) -> None:
        last = 0
        async for event in events:  # type: ignore[attr-defined]
            number, sent_ns = map(int, event.payload.split())
            self.missing += number - last - 1
            last = number
            now_ns = time.monotonic_ns()
            self.latencies_s.append((sent_ns / 1e9, (now_ns - sent_ns) / 1e9))

    def since(self, begin_s: float, end_s: float = float("inf")) -> list[float]:
        """The latencies of events that were published within this time."""
        return [latency for at, latency in self.latencies_s if begin_s <= at < end_s]


@asynccontextmanager
async def light_client(url: str, topic: str, every_s: float) -> AsyncIterator[LightClient]:
    """A client that measures while the block runs."""
    async with connect(url, wait_s=60.0) as session:
        client = LightClient(session, topic, every_s)
        running = asyncio.create_task(client.run())
        try:
            yield client
            if running.done():
                await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
