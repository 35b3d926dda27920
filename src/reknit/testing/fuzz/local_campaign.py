"""Inputs that are tried in a process of this program: a crash or a hang is a finding, and another one goes on."""

from __future__ import annotations

import os
import time
import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from reknit.testing.fuzz.findings import Advance, Finding, TargetReport, signature
from reknit.testing.fuzz.inputs import FuzzInput, shrunk
from reknit.testing.fuzz.targets.all import local_target
from reknit.testing.fuzz.targets.target import LocalTarget

HANGS: Final = "an input hangs"
CRASHES: Final = "an input crashes the process"
HANG_S: Final = 60.0
"""A process that says nothing for longer hangs."""
CHUNK: Final = 50
"""After so many inputs a process tells how far it is."""
WARM: Final = 2_000
"""Memory counts from here on."""
FINDINGS_MAX: Final = 20
SHRINK_S_MAX: Final = 60.0
GROWTH_BYTES_MAX: Final = 256 << 20


class Told(NamedTuple):
    """What a process tells: how many inputs are done, and what is wrong with the last of them."""

    done: int
    text: str = ""
    growth_bytes: int = 0
    is_over: bool = False


class LocalCampaign:
    """All inputs of one target."""

    def __init__(self, target: str, seed: int, folder: Path, advance: Advance) -> None:
        self._target, self._seed, self._folder, self._advance = target, seed, folder, advance
        self._context = get_context("spawn")
        self._current = self._context.Value("q", 0)
        """The number of the input that the process tries."""
        self.report = TargetReport(target, findings=[])

    def run(self, inputs: int, seconds_max: float) -> TargetReport:
        """Try so many inputs, or until the time is up."""
        began = time.monotonic()
        deadline = began + seconds_max
        while self.report.inputs < inputs and time.monotonic() < deadline and not self._is_full:
            self._process(inputs, deadline)
        self.report.seconds = time.monotonic() - began
        if self.report.growth_bytes > GROWTH_BYTES_MAX:
            text = f"the process grew by more than {GROWTH_BYTES_MAX >> 20} MiB"
            self.report.findings.append(Finding(self._target, text, text))
        return self.report

    @property
    def _is_full(self) -> bool:
        return len(self.report.findings) >= FINDINGS_MAX

    def _process(self, inputs: int, deadline: float) -> None:
        """Try inputs in a process until all are tried, or the process ends."""
        here, there = self._context.Pipe(duplex=False)
        task = (self._target, self._seed, self.report.inputs, inputs, deadline - time.monotonic())
        process = self._context.Process(target=try_inputs, args=(there, self._current, *task), daemon=True)
        process.start()
        there.close()
        try:
            while self._hear(here) and not self._is_full:
                pass
        finally:
            process.join(1.0)
            process.kill()
            process.join()

    def _hear(self, here: Connection) -> bool:
        """What the process tells next. False if that is the last."""
        try:
            told = here.recv() if here.poll(HANG_S) else self._ended(HANGS)
        except EOFError:
            told = self._ended(CRASHES)
        if told.done > self.report.inputs:
            self._advance(told.done - self.report.inputs)
            self.report.inputs = told.done
        self.report.growth_bytes = max(self.report.growth_bytes, told.growth_bytes)
        if told.text:
            self._found(told.done - 1, told.text)
        return not told.is_over

    def _ended(self, what: str) -> Told:
        return Told(self._current.value + 1, what, is_over=True)

    def _found(self, number: int, text: str) -> None:
        what = signature(text)
        if what in [one.what for one in self.report.findings]:
            return
        with local_target(self._target) as target:
            found = target.input(self._seed, number)
        if text not in (HANGS, CRASHES):  # they would take this process with them
            found = small(found, what)
        self.report.findings.append(Finding(self._target, what, text, str(found.save(self._folder))))


def small(found: FuzzInput, what: str) -> FuzzInput:
    """A smaller input with the same effect."""
    deadline = time.monotonic() + SHRINK_S_MAX
    with local_target(found.target) as target:
        return shrunk(
            found, lambda one: time.monotonic() < deadline and signature(tried(target, one)) == what
        )


def tried(target: LocalTarget, found: FuzzInput) -> str:
    """What is wrong with an input; an error as its traceback."""
    try:
        return target.problem(found.steps)
    except Exception:
        return traceback.format_exc()


def try_inputs(
    there: Connection, current: Any, name: str, seed: int, first: int, stop: int, seconds: float
) -> None:
    """Try inputs, and tell how it goes. It runs in a process of its own."""
    deadline, start_bytes = time.monotonic() + seconds, 0
    with local_target(name) as target:
        for number in range(first, stop):
            current.value = number
            text = tried(target, target.input(seed, number))
            if number == first + WARM:
                start_bytes = rss_bytes()
            if text or number % CHUNK == 0:
                growth_bytes = rss_bytes() - start_bytes if start_bytes else 0
                there.send(Told(number + 1, text, growth_bytes))
                if time.monotonic() > deadline:
                    break
    there.send(Told(number + 1, is_over=True))


def rss_bytes() -> int:
    """The resident memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
