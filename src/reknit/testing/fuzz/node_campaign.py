"""Inputs for a port of a node: many peers at once against a real node, with a canary beside them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from reknit.testing.fuzz.canary import CanaryReport
from reknit.testing.fuzz.capture import recorded
from reknit.testing.fuzz.findings import Advance, Finding, TargetReport, signature
from reknit.testing.fuzz.inputs import OPEN, FuzzInput, Step
from reknit.testing.fuzz.node import FuzzedNode
from reknit.testing.fuzz.peers import Conversations
from reknit.testing.fuzz.retrial import Retrial
from reknit.testing.fuzz.targets.target import PortTarget

PEERS: Final = 32
"""How many peers converse with the node at a time."""
EPISODE: Final = 20_000
"""After so many inputs the node is stopped, and the canary is asked what it saw."""
WARM: Final = 1_000
"""Memory counts from here on."""
RECENT: Final = 4 * PEERS
"""How many inputs may have caused what is in the log now."""
FINDINGS_MAX: Final = 20
GROWTH_BYTES_MAX: Final = 256 << 20
"""More is a finding. What a node remembers of sources, topics and names is far less."""


class NodeCampaign:
    """All inputs of one target."""

    def __init__(self, target: PortTarget, seed: int, folder: Path, advance: Advance) -> None:
        self._target, self._seed, self._folder, self._advance = target, seed, folder, advance
        self.report = TargetReport(target.name, findings=[], canary=CanaryReport())
        self._recent: deque[FuzzInput] = deque(maxlen=RECENT)
        self._suspects: dict[str, list[FuzzInput]] = {}
        """By finding: the inputs that may have caused it."""
        self._deadline = 0.0

    def run(self, inputs: int, seconds_max: float) -> TargetReport:
        """Try so many inputs, or until the time is up. Each peer tries one at least."""
        recorded()  # now, as it needs an event loop of its own
        began = time.monotonic()
        self._deadline = began + seconds_max
        while self.report.inputs < inputs and (not self.report.inputs or not self._is_over):
            self._episode(min(EPISODE, inputs - self.report.inputs))
        self.report.seconds = time.monotonic() - began
        return self.report

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline or len(self.report.findings) >= FINDINGS_MAX

    def _episode(self, count: int) -> None:
        with FuzzedNode(self._target.port) as node:
            try:
                uvloop.run(self._fuzz(node, count))
                self._end(node)
            except _NodeEnded:
                pass
            self.report.stalls += node.stalls
        self._explain()

    async def _fuzz(self, node: FuzzedNode, count: int) -> None:
        peers = self._target.peers(node)
        first = self.report.inputs
        numbers = iter(range(first, first + count))
        warm = Warm(node, first)
        await asyncio.gather(*(self._work(node, peers, numbers, warm) for _ in range(PEERS)))
        peers.close()
        await asyncio.sleep(0.2)
        self._look(node)
        if problem := await self._target.check(node):
            self._found(problem)
        self.report.growth_bytes = max(self.report.growth_bytes, warm.growth_bytes)

    async def _work(self, node: FuzzedNode, peers: Conversations, numbers: Iterator[int], warm: Warm) -> None:
        for number in numbers:
            made = self._target.input(self._seed, number)
            self._recent.append(made)
            await peers.converse(made.steps)
            self.report.inputs += 1
            self._advance(1)
            warm.note(number)
            self._look(node)
            if self._is_over:
                return

    def _look(self, node: FuzzedNode) -> None:
        problem = node.problem()
        if problem:
            self._found(problem)
        if not node.is_running:
            raise _NodeEnded

    def _end(self, node: FuzzedNode) -> None:
        seen, problem = node.end()
        total = self.report.canary
        assert total is not None
        total.published += seen.published
        total.received += seen.received
        total.worst_s = max(total.worst_s, seen.worst_s)
        total.problems += seen.problems
        for text in (problem, *seen.problems, self._growth()):
            if text:
                self._found(text)

    def _growth(self) -> str:
        grown = self.report.growth_bytes
        return (
            f"the node's memory grew by more than {GROWTH_BYTES_MAX >> 20} MiB"
            if grown > GROWTH_BYTES_MAX
            else ""
        )

    # -- findings

    def _found(self, text: str) -> None:
        finding = Finding(self._target.name, signature(text), text)
        if finding.what not in [one.what for one in self.report.findings]:
            self.report.findings.append(finding)
            self._suspects[finding.what] = list(self._recent)

    def _explain(self) -> None:
        """Look for the inputs that caused the findings, and save them."""
        for finding in self.report.findings:
            recent = self._suspects.pop(finding.what, [])
            if recent:
                with Retrial(self._target) as retrial:
                    found = retrial.culprit(recent, finding.what) or together(recent)
                finding.path = str(found.save(self._folder))


class _NodeEnded(Exception):
    """The node crashed: a finding that was noted."""


class Warm:
    """The growth of the node's memory after the first inputs of an episode."""

    def __init__(self, node: FuzzedNode, first: int) -> None:
        self._node, self._from, self._start = node, first + WARM, 0
        self.growth_bytes = 0

    def note(self, number: int) -> None:
        """An input was tried."""
        if number >= self._from and number % 500 == 0:
            now = self._node.rss_bytes
            self._start = self._start or now
            self.growth_bytes = max(self.growth_bytes, now - self._start)


def together(several: list[FuzzInput]) -> FuzzInput:
    """Several inputs as one, each on a connection of its own."""
    steps = [step for one in several for step in (Step(OPEN), *one.steps)]
    return msgspec.structs.replace(several[-1], steps=tuple(steps))
