"""Inputs that are tried again, one by one: which of them causes a finding, and how small it can be."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import uvloop

from reknit.testing.fuzz.findings import signature
from reknit.testing.fuzz.inputs import FuzzInput, shrunk
from reknit.testing.fuzz.node import FuzzedNode
from reknit.testing.fuzz.targets.target import PortTarget

SETTLE_S: Final = 0.15
"""How long the node gets to log what an input did."""
SECONDS_MAX: Final = 60.0
"""How long one finding is looked for and made small."""


class Retrial:
    """A node without a canary that inputs are tried on, while in its `with`. One that crashed is replaced."""

    def __init__(self, target: PortTarget) -> None:
        self._target = target
        self._node = FuzzedNode(target.port, has_canary=False)
        self._deadline = time.monotonic() + SECONDS_MAX

    def __enter__(self) -> Retrial:
        self._node.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self._node.__exit__(*args)

    def culprit(self, recent: list[FuzzInput], what: str) -> FuzzInput | None:
        """The one of these inputs that has this effect, made small. None if none has it alone."""
        for one in reversed(recent):
            if self._causes(one, what) and self._causes(one, what):
                return shrunk(one, lambda smaller: self._causes(smaller, what))
        return None

    def _causes(self, found: FuzzInput, what: str) -> bool:
        if time.monotonic() > self._deadline:
            return False
        return any(signature(text) == what for text in self.effects(found))

    def effects(self, found: FuzzInput) -> list[str]:
        """What the node logs when an input is tried."""
        if not self._node.is_running:
            self._node.__exit__()
            self._node = FuzzedNode(self._target.port, has_canary=False).__enter__()
        self._node.problem()
        uvloop.run(self._try(found))
        return [text] if (text := self._node.problem()) else []

    async def _try(self, found: FuzzInput) -> None:
        peers = self._target.peers(self._node)
        await peers.converse(found.steps)
        peers.close()
        await asyncio.sleep(SETTLE_S)
