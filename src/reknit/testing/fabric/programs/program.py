"""A program on a host of its own: it lives, crashes, and is started again until the simulation ends."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import suppress
from random import Random
from typing import Any, Final

from reknit.config import Config, RecoverySettings, TransportSettings
from reknit.errors import Closed, NotConnected, Refused, ReknitError
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.record import EventId, Record
from reknit.testing.fabric.replacements import Replacement
from reknit.testing.fabric.virtual.hosts import Host

AGAIN_S: Final = 0.3
"""How long a service manager waits before it starts a program that failed."""
EXPECTED: Final = (OSError, NotConnected, Refused, Closed, TimeoutError)
"""How a program may fail while faults happen."""

CLIENT: Final = Config(
    transport=TransportSettings(
        heartbeat_s=0.5, peer_timeout_s=2.0, hello_timeout_s=2.0, reconnect_backoff_s_max=0.5
    ),
    recovery=RecoverySettings(ask_timeout_s=0.5, patience_s=20.0),
)


def is_expected(error: Exception) -> bool:
    """Whether a program may fail like that. A task group wraps what its tasks raise."""
    if isinstance(error, ExceptionGroup):
        return all(is_expected(one) for one in error.exceptions)
    return isinstance(error, EXPECTED)


def is_peaceful(plan: FabricPlan) -> bool:
    """Whether no fault can interrupt what a program does."""
    rates = (plan.reset_rate, plan.cut_rate, plan.slow_rate, plan.crash_rate, plan.freeze_rate)
    others = (plan.program_crash_rate, plan.replace_rate, plan.full_rate, plan.sync_failure_rate)
    return not any(rates) and not any(others) and not plan.stall_s_max


class Scene:
    """What all programs of a simulation share."""

    def __init__(self, fabric: Fabric, plan: FabricPlan) -> None:
        self.fabric, self.plan = fabric, plan
        self.record = Record(lambda: fabric.loop.now, self._is_sent_since)
        self.homes: dict[str, str] = {}
        """The node of each program."""
        self.outposts: list[str] = []
        """The nodes that are not linked to the others."""
        self.feeds: list[tuple[str, str, str]] = []
        """How events come to them: from, to, and how."""
        self.lives: list[Any] = []
        """Every member of a group that there ever was: see `programs/groups.py`."""
        self.replaced: list[Replacement] = []
        """The nodes that lost their disk."""
        self.calm_at = self.linked_at = 0.0
        """When the faults were over, and when every node reached every other one again."""
        self._calm = asyncio.Event()

    @property
    def is_calm(self) -> bool:
        """The faults are over: nobody publishes any more, and every event is accepted at once."""
        return self._calm.is_set()

    def calm_down(self) -> None:
        """The faults are over."""
        self._calm.set()

    async def sleep_until_calm(self, seconds: float) -> None:
        """Wait for a while, but no longer than there are faults: the fabric comes to rest sooner."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calm.wait()

    def _is_sent_since(self, event_id: EventId, at: float) -> bool:
        """Whether a node sent an event to a worker after a moment, and waits for the outcome."""
        topic, source, seq = event_id
        return any(
            one.series == (topic, source) and one.start <= seq < one.stop and one.sent_at > at
            for node in self.fabric.nodes.values()
            for path in node.node.anycast.machine.paths()
            for one in path
        )


class Program:
    """One program. Subclasses say what it does in `live`."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        self.scene, self.name, self.node = scene, name, node
        self.host: Host = scene.fabric.host(name)
        self.rng: Random = scene.fabric.rng(name)
        scene.homes[name] = node.name
        self._task: asyncio.Task[None] | None = None

    @property
    def now(self) -> float:
        return self.scene.fabric.loop.now

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return True

    def start(self) -> None:
        """Start in a new life of the host, if it crashed."""
        life = self.host.life if self.host.is_alive else self.host.start()
        assert life is not None
        self._task = life.create_task(self._run())

    def crash(self) -> None:
        """End at once."""
        self.host.crash(is_power_lost=self.rng.random() < 0.5)
        self.scene.fabric.network.crashed(self.host)

    def session(self, name: str = "", **more: Any) -> Any:
        """A session with this program's node."""
        return self.scene.fabric.session(self.node.url, name, config=CLIENT, wait_s=30.0, **more)

    async def think(self) -> None:
        """Take some time for an event, as long as there are faults."""
        if not self.scene.is_calm:
            await asyncio.sleep(self.think_s())

    def think_s(self) -> float:
        """How long it thinks about the next event."""
        return 0.0 if self.scene.is_calm else self.rng.uniform(0.0, self.scene.plan.think_s_max)

    async def _run(self) -> None:
        while True:
            try:
                await self.live()
                return
            except Exception as error:
                if is_expected(error):
                    await asyncio.sleep(AGAIN_S)
                    continue
                text = (
                    "".join(traceback.format_exception(error)) if not isinstance(error, ReknitError) else ""
                )
                self.scene.record.blame(f"{self.name} failed: {error!r} {text}")
                return

    async def live(self) -> None:
        """What it does from a start to its end."""
        raise NotImplementedError


class QuittingProgram(Program):
    """A program that may leave in the middle of a delivery, and comes back."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._quits = scene.fabric.rng(f"quits {name}")

    def quits(self) -> bool:
        """Whether it leaves now."""
        return not self.scene.is_calm and self._quits.random() < self.scene.plan.quit_share

    async def live(self) -> None:
        while True:
            await self.listen()
            await asyncio.sleep(self._quits.uniform(0.0, AGAIN_S))

    async def listen(self) -> None:
        """Subscribe, until it leaves."""
        raise NotImplementedError


class ListeningProgram(Program):
    """A program that is ready before others begin."""

    is_open = False
    """Whether it is."""

    def crash(self) -> None:
        self.is_open = False
        super().crash()
