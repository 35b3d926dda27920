"""What both sides of `python -m bench.recovery` share: processes, what they count, and what a case gives."""

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
    """Keeps what arrives, and looks at it when the time was taken: every number once and in order."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def look(self) -> tuple[int, int]:
        """The last number, and how many did not follow the one before them."""
        numbers = [int.from_bytes(data[:8], "little") for data in self.got]
        wrong = sum(1 for before, number in pairwise([0, *numbers]) if number != before + 1)
        return numbers[-1], wrong


class Actor:
    """One process and the way to it."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=target, args=(*args, other), daemon=True)
        self.process.start()
        other.close()

    def ready(self) -> Actor:
        """Return when it is up. Several are started first and waited for then: that is quicker."""
        self.hear()
        return self

    def say(self, word: object) -> None:
        self.pipe.send(word)

    def hear(self) -> Any:
        if not self.pipe.poll(WAIT_S):
            raise TimeoutError(f"{self.process.name} says nothing")
        return self.pipe.recv()

    def ask(self, word: object) -> Any:
        self.say(word)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.join()


class Meter:
    """Processor time of some processes, all threads: what a case costs, however busy the machine is otherwise."""

    def __init__(self, *pids: int | None) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> float:
        tasks = [task for pid in self._pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def spent_s(self) -> float:
        return self._now() - self._before


class Result(msgspec.Struct, frozen=True):
    """What a case gives: how long it took, and what was not as it should be."""

    seconds: float
    missing: int
    wrong: int
    """Events out of order, or twice."""
    cpu_s: float
    """Of all processes."""


def ended(subscriber: Actor, wanted: int, meter: Meter, begun: float | None = None) -> Result:
    """Wait for the subscriber to have all; without `begun`, the time is from its own call on."""
    try:
        called, done, last, wrong = subscriber.hear()
    except TimeoutError:
        return Result(float("nan"), wanted, 0, float("nan"))
    return Result(done - (called if begun is None else begun), wanted - last, wrong, meter.spent_s())
