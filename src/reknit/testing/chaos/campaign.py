"""A campaign: start a fabric, break it as planned, heal it, wait until everything has ended, and check."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from reknit.errors import ReknitError
from reknit.processes.process import Process, ending
from reknit.testing.chaos.checks import findings
from reknit.testing.chaos.fabric import Fabric, FabricBuilder
from reknit.testing.chaos.injector import Done, Injector, tail
from reknit.testing.chaos.machine import Machine
from reknit.testing.chaos.observation import Observation, observe
from reknit.testing.chaos.pipeline import ChaosPipeline
from reknit.testing.chaos.plan import Plan, make_plan
from reknit.testing.chaos.proxy import Mode, Proxies
from reknit.testing.chaos.record import STOP
from reknit.testing.chaos.start import start

QUIET_S = 240.0
"""Healed fabrics that make no progress for so long are given up: a busy machine gives a client no turn for minutes."""
SAMPLE_S = 1.0


@dataclass
class Result:
    """Everything that the report shows."""

    plan: Plan
    machine: Machine
    seen: Observation
    done: list[Done] = field(default_factory=list)
    samples: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, events stored until then)."""
    findings: list[str] = field(default_factory=list)
    healed_s: float = 0.0
    """How long it took from the last fault until everything had ended."""


class Campaign:
    """One run. `say` gets a line for everything that happens."""

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        *,
        seed: int,
        seconds: float,
        nodes: int,
        without: Collection[str],
        say: Callable[[str], None],
        every_s: float = 5.0,
    ) -> None:
        self._say = say
        self._proxies = Proxies()
        self.fabric: Fabric = FabricBuilder(
            folder, machine, self._proxies, nodes=nodes, without=without
        ).build()
        self.plan = make_plan(seed, seconds, self.fabric.targets, every_s=every_s)
        self._pipeline = None if "spark" in self.fabric.without else ChaosPipeline(self.fabric)
        self._injector = Injector(self.fabric, self._pipeline, say)
        self._samples: list[tuple[float, int]] = []

    def run(self) -> Result:
        """Run the whole campaign."""
        processes: list[Process] = [*self.fabric.processes(), *([self._pipeline] if self._pipeline else [])]
        with ExitStack() as stack:
            stack.callback(self._proxies.close)
            stack.enter_context(ending(*processes))
            self._say(f"starting {len(processes)} processes")
            start(self.fabric)
            if self._pipeline is not None:
                self._pipeline.start()
            self._say("faults begin")
            self._injector.run(self.plan, self._sample)
            return self._judge()

    def _sample(self) -> None:
        now_s = self._injector.now_s
        if not self._samples or now_s - self._samples[-1][0] >= SAMPLE_S:
            total = sum(last_stored(self.fabric.record(one.name)) for one in self.fabric.publishers)
            self._samples.append((now_s, total))

    def _judge(self) -> Result:
        began = time.monotonic()
        found = [*self._injector.findings, *self._heal()]
        self._say("everything is healed; waiting until every event has ended")
        seen = self._settle()
        healed_s = time.monotonic() - began
        if self._pipeline is not None:
            self._say("the pipeline captures the rest, and audits it")
            try:
                self._pipeline.finish()
                seen.audit, seen.tables = self._pipeline.audit(), self._pipeline.numbers()
            except ReknitError as error:
                found.append(f"the pipeline failed: {error}")
        found += findings(seen)
        done = sorted(self._injector.done, key=lambda one: one.fault.number)
        return Result(self.plan, self.fabric.machine, seen, done, self._samples, found, healed_s)

    def _heal(self) -> list[str]:
        """End all faults, and start what does not run. Returns what ended by itself."""
        found = []
        for proxy in self.fabric.links.values():
            proxy.change(Mode.OPEN)
        for process in self.fabric.processes():
            if not process.is_running:
                found.append(f"{process.name} ended by itself with code {process.code}: {tail(process)}")
                process.start()
        (self.fabric.folder / STOP).touch()
        return found

    def _settle(self) -> Observation:
        """Wait until everything has ended, or nothing moves any more."""
        seen, changed, before = observe(self.fabric), time.monotonic(), ""
        while not seen.is_settled() and time.monotonic() - changed < QUIET_S:
            time.sleep(1.0)
            seen = observe(self.fabric)
            now = str([*seen.open_pairs(), *((name, one.last) for name, one in seen.published.items())])
            if now != before:
                changed, before = time.monotonic(), now
        return seen


def last_stored(path: Path) -> int:
    """The number in the last line of a publisher's record."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 100))
        numbers = [line.split()[1] for line in file.read().splitlines() if line.startswith(b"stored ")]
    return int(numbers[-1]) if numbers else 0
