"""A program beside the fuzzers that publishes and subscribes: it must see every event once and in order.

python -m reknit.testing.fuzz.canary tcp://127.0.0.1:7440

It runs until its input ends, and prints what it saw as JSON, after a line that says that it is ready.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from typing import Any, Final

import msgspec

from reknit.client.session import Session

TOPIC: Final = "canary/beat"
READY: Final = "ready"
"""It prints this when it publishes and both subscribers are there."""
PAUSE_S: Final = 0.02
STUCK_S: Final = 60.0
"""An event that takes longer counts as lost."""


class CanaryReport(msgspec.Struct):
    """What a canary saw."""

    published: int = 0
    received: int = 0
    """By the subscriber that saw the fewest."""
    worst_s: float = 0.0
    """The longest time between the call that published an event and its arrival."""
    problems: list[str] = []


class Canary:
    """Publishes numbers, and checks those that two subscribers get: one with a name, one without."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.report = CanaryReport(problems=[])
        self._sent: list[float] = []
        self._seen = {"canary": 0, "": 0}
        self._is_over = asyncio.Event()

    async def run(self) -> CanaryReport:
        """Run until `stop`, then until everything has arrived."""
        try:
            await self._live()
        except Exception:
            self.report.problems.append(traceback.format_exc())
        self.report.published, self.report.received = len(self._sent), min(self._seen.values())
        return self.report

    def stop(self) -> None:
        """Publish no more."""
        self._is_over.set()

    async def _live(self) -> None:
        async with Session(self._url, "canary") as session:
            ready = asyncio.Barrier(len(self._seen) + 1)
            readers = [asyncio.create_task(self._read(session, name, ready)) for name in self._seen]
            await ready.wait()
            print(READY, flush=True)
            while not self._sent or not self._is_over.is_set():
                self._sent.append(time.monotonic())
                async with asyncio.timeout(STUCK_S):
                    await session.publish(TOPIC, b"%d" % len(self._sent))
                await asyncio.sleep(PAUSE_S)
            await asyncio.wait_for(asyncio.gather(*readers), STUCK_S)

    async def _read(self, session: Any, name: str, ready: asyncio.Barrier) -> None:
        async with session.subscribe(TOPIC, name=name) as events:
            await ready.wait()
            while not self._is_over.is_set() or self._seen[name] < len(self._sent):
                try:
                    event = await asyncio.wait_for(anext(events), 0.5)
                except TimeoutError:
                    self._check_delay(name)
                    continue
                self._note(name, int(event.payload))

    def _note(self, name: str, number: int) -> None:
        if number != self._seen[name] + 1:
            self.report.problems.append(f"subscriber {name!r} got {number} after {self._seen[name]}")
        self._seen[name] = number
        self.report.worst_s = max(self.report.worst_s, time.monotonic() - self._sent[number - 1])

    def _check_delay(self, name: str) -> None:
        seen = self._seen[name]
        if seen < len(self._sent) and time.monotonic() - self._sent[seen] > STUCK_S:
            raise TimeoutError(f"subscriber {name!r} waits for {seen + 1} of {len(self._sent)} events")


async def watch(url: str) -> CanaryReport:
    """A canary until this program's input ends."""
    canary = Canary(url)
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    ended.add_done_callback(lambda _: canary.stop())
    return await canary.run()


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(watch(sys.argv[1]))).decode())
