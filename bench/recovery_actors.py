"""Shared by both sides of `python -m bench.recovery`: processes, checks, and the result of a case."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

PAYLOAD = bytes(92)
WAIT_S = 60.0
KEY = "bench/recovery"


def payload(number: int) -> bytes:
    return number.to_bytes(8, "little") + PAYLOAD


class Tally:
    """Collects what arrives. The check, every number once and in order, runs after the time was taken."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def look(self) -> tuple[int, int]:
        """The last number, and how many numbers did not follow the one before them."""
        numbers = [int.from_bytes(data[:8], "little") for data in self.got]
        wrong = sum(1 for before, number in pairwise([0, *numbers]) if number != before + 1)
        return numbers[-1], wrong


class Actor:
    """A process, and a pipe to it."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=target, args=(*args, other), daemon=True)
        self.process.start()
        other.close()

    def ready(self) -> Actor:
        """Wait until it is up. Start several before you wait for any: that is faster."""
        self.hear()
        return self

    def say(self, word: object) -> None:
        self.pipe.send(word)

    def hear(self) -> Any:
        if not self.pipe.poll(WAIT_S):
            raise TimeoutError(f"{self.process.name} has sent nothing for {WAIT_S:g} s")
        return self.pipe.recv()

    def ask(self, word: object) -> Any:
        self.say(word)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.join()


class Meter:
    """CPU time of processes, over all threads: the cost of a case, even on a busy machine."""

    def __init__(self, *pids: int | None) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> float:
        tasks = [task for pid in self._pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def spent_s(self) -> float:
        return self._now() - self._before


class Result(msgspec.Struct, frozen=True):
    """The result of a case: its time, and the wrong events."""

    seconds: float
    missing: int
    wrong: int
    """Events that arrived out of order, or twice."""
    cpu_s: float
    """Of all processes."""


def ended(subscriber: Actor, wanted: int, meter: Meter, begun: float | None = None) -> Result:
    """Wait until the subscriber has all events. Without `begun`, the time starts at its own call."""
    try:
        called, done, last, wrong = subscriber.hear()
    except TimeoutError:
        return Result(float("nan"), wanted, 0, float("nan"))
    return Result(done - (called if begun is None else begun), wanted - last, wrong, meter.spent_s())
