"""The world that the nodes and programs of one simulation share: plan, clock, network, witness and trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from reknit.node.core.core import Core
from reknit.protocol.publish.publisher import SourcePublisher
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.store.memory import SimJournal
from reknit.testing.archive import ARCHIVE, Archive
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import Network
from reknit.testing.witness import Witness


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts under test. Replace one with a faulty copy to see whether the simulation finds the fault."""

    core: Callable[..., Core] = Core
    journal: Callable[..., SimJournal] = SimJournal
    publisher: Callable[..., SourcePublisher] = SourcePublisher
    subscriber: Callable[..., Subscriber] = Subscriber


class World:
    """Plan, clock, network, witness and trace of one simulation."""

    def __init__(self, plan: FaultPlan, parts: Parts, is_traced: bool) -> None:
        self.plan = plan
        self.parts = parts
        self.clock = Clock()
        self.witness = Witness(self.clock, plan)
        self.network = Network(self.clock, plan, self.rng("network"))
        self.archive = Archive(self.clock, plan, self.rng(ARCHIVE))
        self.is_calm = False
        """The faults are over, nobody publishes, and every event is accepted."""
        self.trace: list[str] = []
        self._is_traced = is_traced

    def end_faults(self) -> None:
        """From now on nothing fails, nobody publishes, and every event is accepted."""
        self.is_calm = True

    def rng(self, name: str) -> Random:
        """A random generator for a name, independent of all others."""
        return Random(f"{name} {self.plan.seed}")

    def tell(self, who: str, *what: object) -> None:
        """Write a line of the trace."""
        if self._is_traced:
            self.trace.append(f"{self.clock.now:9.4f}  {who:<10} {' '.join(map(_shown, what))}")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
