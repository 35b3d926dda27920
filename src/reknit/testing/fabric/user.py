"""Fabrics for tests of your own programs: they run on simulated hosts, with the faults of a seed, in virtual time.

`reknit.testing.fabric.plugin` runs such a test once for every seed, and prints how to replay the one that failed.

>>> import asyncio, reknit
>>> got = []
>>> async def reader(url):
...     async with reknit.connect(url) as session, session.subscribe("plant/*", name="reader") as events:
...         async for event in events:
...             got.append(event.payload)
>>> async def test():
...     async with simulated_fabric(nodes=2, crash_rate=0.5) as fabric:
...         fabric.start("reader", reader, fabric.urls[1])
...         await fabric.settled()
...         async def write():
...             async with reknit.connect(fabric.urls[0]) as session:
...                 await session.publish("plant/temp", b"21.5")
...         await fabric.run(write())
...         await fabric.rest()
>>> run_simulated(test, seed=7)
>>> got
[b'21.5']
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from reknit.testing.fabric.checks.events import ledgers_balance, no_error_is_unhandled
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.faults import Faults
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.run import FabricSimulation

T = TypeVar("T")

LOOK_S: Final = 0.25
REST_S: Final = 300.0
"""How long a fabric may take to come to rest, in virtual seconds."""
SETTLE_S: Final = 2.0
"""How long subscriptions take to be known to all nodes."""


class NotAtRest(AssertionError):
    """A fabric did not come to rest, or a promise does not hold."""


class UserProgram(Program):
    """A program of the test's author. It is started again after a crash, until it returns."""

    def __init__(
        self, scene: Scene, name: str, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]
    ) -> None:
        super().__init__(scene, name, next(iter(scene.fabric.nodes.values())))
        self._function, self._args = function, args

    async def live(self) -> None:
        await self._function(*self._args)


class SimulatedFabric:
    """Nodes, your programs and the faults between them; made by `simulated_fabric`."""

    def __init__(self, simulation: FabricSimulation) -> None:
        self._simulation = simulation
        self._programs: list[Program] = []
        self._faults = Faults(simulation.scene, self._programs)
        self._is_faulty = False
        self._helpers = 0

    @property
    def urls(self) -> list[str]:
        """The addresses of the nodes, for `reknit.connect`."""
        return [node.url for node in self._simulation.fabric.nodes.values()]

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self._simulation.plan.seed

    def start(self, name: str, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run `await function(*args)` as a program on a host of its own, which faults may hit.

        If its host crashes, it is started again from the beginning, as a service manager would. So is a program that
        fails because the network does.
        """
        program = UserProgram(self._simulation.scene, name, function, args)
        self._programs.append(program)
        program.start()

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run something on a host that no fault hits, and wait for its result."""
        self._helpers += 1
        return await self._simulation.fabric.host(f"helper {self._helpers}").run(coro)

    async def settled(self) -> None:
        """Wait until all nodes are linked and know of all subscriptions; then the faults begin."""
        while not self._simulation.is_linked():  # noqa: ASYNC110 (in virtual time)
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(SETTLE_S)
        if not self._is_faulty:
            self._is_faulty = True
            self._faults.start()

    async def calm(self) -> None:
        """End all faults: the network heals, and everything that crashed is started."""
        if self._is_faulty:
            self._is_faulty = False
            await self._faults.stop()

    async def rest(self) -> None:
        """End all faults, and wait until no event is in flight. Raises `NotAtRest` if that takes too long."""
        await self.calm()
        deadline = asyncio.get_running_loop().time() + REST_S
        while True:
            await asyncio.sleep(LOOK_S)
            problems = [*ledgers_balance(self._simulation.scene)]
            if not problems and self._simulation.is_linked():
                await asyncio.sleep(SETTLE_S)
                problems = [*ledgers_balance(self._simulation.scene)]
                if not problems:
                    break
            if asyncio.get_running_loop().time() > deadline:
                raise NotAtRest("; ".join(problems[:3]) or "not every node is reachable")
        self._check()

    def _check(self) -> None:
        problems = [*no_error_is_unhandled(self._simulation.scene), *self._simulation.scene.record.problems]
        if problems:
            raise NotAtRest("; ".join(problems[:3]))


@asynccontextmanager
async def simulated_fabric(nodes: int = 1, **faults: Any) -> AsyncIterator[SimulatedFabric]:
    """Start linked nodes in the running simulation. `faults` are fields of `FabricPlan`; without any there are none.

    It works in a test that the plugin runs, and in `run_simulated`.
    """
    fabric = getattr(asyncio.get_running_loop(), "fabric", None)
    if not isinstance(fabric, Fabric):
        raise RuntimeError(
            "simulated_fabric needs a simulation: mark the test with @pytest.mark.simulated, or use run_simulated"
        )
    plan = replace(FabricPlan(seed=fabric.seed, nodes=nodes), **faults)
    simulation = FabricSimulation(fabric, plan)
    await simulation.start_nodes(fabric.rng("scene"))
    made = SimulatedFabric(simulation)
    try:
        yield made
    finally:
        await made.calm()


def run_simulated(test: Callable[..., Coroutine[Any, Any, None]], *args: Any, seed: int = 0) -> None:
    """Run an async function in a simulation of its own, with virtual time."""
    with Fabric(seed) as fabric:
        fabric.loop.fabric = fabric
        fabric.run(test(*args))
