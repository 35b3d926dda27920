"""Makes the faults of a plan happen: to the network, to hosts, to disks, and to programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from reknit.errors import JournalCorrupt
from reknit.store.directory.repair import repair
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.replacements import NEVER, Replacement, copy_disk, start_replaced
from reknit.testing.fabric.virtual.disk import flip_byte
from reknit.testing.fabric.virtual.hosts import Host


class Faults:
    """Injects faults at random times, until `stop`."""

    def __init__(self, scene: Scene, programs: list[Program]) -> None:
        self._scene, self._programs = scene, programs
        self._network, self._rng = scene.fabric.network, scene.fabric.rng("faults")
        self._tasks: list[asyncio.Task[None]] = []
        self._running: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        """Begin."""
        plan = self._scene.plan
        self._network.delay_s_range = (0.0001, plan.delay_s_max)
        self._network.split_share, self._network.socket_bytes = plan.split_share, plan.socket_bytes
        datagrams = self._network.datagrams
        datagrams.loss_share, datagrams.copy_share = plan.datagram_loss_share, plan.datagram_copy_share
        datagrams.full_share = plan.datagram_full_share
        drifts = self._scene.fabric.rng("drifts")
        for host in self._hosts() if plan.drift_max else ():
            host.drift_clock(drifts.uniform(-1.0, 1.0) * plan.drift_max)
        for node in self._nodes():
            node.host.disk.stall_s_max = plan.stall_s_max
        for rate, fault in (
            (plan.reset_rate, self._reset),
            (plan.cut_rate, self._cut),
            (plan.slow_rate, self._slow),
            (plan.crash_rate, self._crash_node),
            (plan.outage_rate, self._crash_all),
            (plan.freeze_rate, self._freeze),
            (plan.replace_rate, self._replace_disk),
            (plan.program_crash_rate, self._crash_program),
            (plan.step_rate, self._step_clock),
            (plan.full_rate, self._fill_disk),
            (plan.sync_failure_rate, self._fail_syncs),
        ):
            if rate:
                self._tasks.append(asyncio.create_task(self._repeat(rate, fault)))

    async def stop(self) -> None:
        """No more faults: everything heals and runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._running)
        self._network.heal_all()
        for node in self._nodes():
            node.host.disk.heal()
            if not node.is_up:
                await node.start()
        for program in self._programs:
            if not program.host.is_alive:
                program.start()

    def over_at(self) -> float:
        """When the last effect of a fault ends: a disk that stalled in a start may keep its host busy for a while."""
        lives = (host.life for host in self._hosts())
        return max([self._scene.fabric.loop.now, *(life.frozen_to for life in lives if life is not None)])

    async def _repeat(self, rate: float, fault: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(rate))
            self._running.append(asyncio.ensure_future(fault()))

    def _nodes(self) -> list[FabricNode]:
        return list(self._scene.fabric.nodes.values())

    def _hosts(self) -> list[Host]:
        return [node.host for node in self._nodes()] + [program.host for program in self._programs]

    def _tell(self, *what: object) -> None:
        self._network.trace("fault", *what)

    # -- the network

    def _two(self) -> tuple[str, str]:
        node = self._rng.choice(self._nodes()).host
        others = [host for host in self._hosts() if host is not node]
        return node.address, self._rng.choice(others).address

    async def _reset(self) -> None:
        one, other = self._two()
        self._tell("reset", one, other, self._network.reset(one, other))

    async def _cut(self) -> None:
        pairs = [self._two()]
        if self._rng.random() < 0.3:  # a whole host is cut off
            one = self._rng.choice(self._nodes()).host.address
            pairs = [(one, host.address) for host in self._hosts() if host.address != one]
        if self._rng.random() >= self._scene.plan.one_way_share:
            pairs += [(stop, start) for start, stop in pairs]
        self._tell("cut", pairs)
        for start, stop in pairs:
            self._network.cut(start, stop)
        await asyncio.sleep(self._rng.uniform(0.0, self._scene.plan.cut_s_max))
        self._tell("heal", pairs)
        for start, stop in pairs:
            self._network.heal(start, stop)

    async def _slow(self) -> None:
        one, other = self._two()
        self._tell("slow", one, other)
        self._network.slow(one, other, self._rng.uniform(0.0, self._scene.plan.slow_s_max))
        await asyncio.sleep(self._rng.uniform(0.0, self._scene.plan.cut_s_max))
        self._network.slow(one, other, 0.0)

    # -- hosts

    async def _crash_node(self) -> None:
        plan = self._scene.plan
        node = self._rng.choice(self._nodes())
        if not node.is_up or node.config.journal.kind == "memory":
            return
        if self._rng.random() < plan.stop_share:
            self._tell("stop", node.name)
            await node.stop()
        else:
            is_power_lost = self._rng.random() < plan.power_share
            self._tell("crash", node.name, is_power_lost)
            node.crash(is_power_lost=is_power_lost)
        await self._start(node)

    async def _crash_all(self) -> None:
        """The power fails for a moment. Each node takes its time to be back."""
        up = [node for node in self._nodes() if node.is_up and node.config.journal.kind == "disk"]
        self._tell("outage", *(node.name for node in up))
        for node in up:
            node.crash(is_power_lost=self._rng.random() < self._scene.plan.power_share)
        await asyncio.gather(*(self._start(node) for node in up))

    async def _start(self, node: FabricNode) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, self._scene.plan.down_s_max))
        self._tell("start", node.name)
        node.host.disk.is_full = node.host.disk.is_failing = False
        if self._rng.random() < self._scene.plan.flip_share:
            self._tell(
                "flip", node.name, flip_byte(sorted(node.host.folder.glob("log/*.log"))[:-1], self._rng)
            )
        try:
            await node.start()
        except JournalCorrupt as error:  # an operator does what it says
            self._tell("repair", node.name, error.why)
            repair(node.host.folder)
            await node.start()

    async def _replace_disk(self) -> None:
        """The disk of a node is gone, and another one is there: empty, or with a copy from a while ago."""
        scene, node = self._scene, self._rng.choice(self._nodes())
        if not self._is_replaceable(node):
            return
        copy, copied_at = None, NEVER
        if self._rng.random() >= scene.plan.empty_share:
            self._tell("copy", node.name)
            await node.stop()
            copy, copied_at = copy_disk(node), scene.fabric.loop.now
            await self._start(node)
            await asyncio.sleep(self._rng.uniform(0.0, scene.plan.run_s / 2))
        if not self._is_replaceable(node):
            return
        self._tell("replace", node.name, copied_at)
        node.crash(is_power_lost=True)
        scene.replaced.append(Replacement(node.name, copied_at, scene.fabric.loop.now))
        scene.record.is_forgetful = True
        scene.record.forget_letters(node)
        await asyncio.sleep(self._rng.uniform(0.0, scene.plan.down_s_max))
        await start_replaced(node, copy)

    def _is_replaceable(self, node: FabricNode) -> bool:
        is_linked = node.name not in self._scene.outposts
        return is_linked and node.is_up and node.config.journal.kind == "disk"

    async def _freeze(self) -> None:
        host = self._rng.choice(self._hosts())
        seconds = self._rng.uniform(0.0, self._scene.plan.freeze_s_max)
        if host.life is not None and host.is_alive:
            self._tell("freeze", host.name, seconds)
            host.life.freeze(seconds)

    async def _crash_program(self) -> None:
        program = self._rng.choice(self._programs)
        if not program.host.is_alive:
            return
        self._tell("crash", program.name)
        program.crash()
        await asyncio.sleep(self._rng.uniform(0.0, self._scene.plan.program_down_s_max))
        program.start()

    async def _step_clock(self) -> None:
        host = self._rng.choice(self._hosts())
        seconds = self._rng.uniform(-1.0, 1.0) * self._scene.plan.step_s_max
        self._tell("clock", host.name, seconds)
        host.step_clock(seconds)

    async def _fill_disk(self) -> None:
        node = self._rng.choice(self._nodes())
        self._tell("full", node.name)
        node.host.disk.is_full = True
        await asyncio.sleep(self._rng.uniform(0.0, self._scene.plan.full_s_max))
        node.host.disk.is_full = False

    async def _fail_syncs(self) -> None:
        node = self._rng.choice(self._nodes())
        if not node.is_up or node.config.journal.kind == "memory":
            return
        self._tell("failing", node.name)
        node.host.disk.is_failing = True
        await asyncio.sleep(self._rng.uniform(0.0, 1.0))
        if node.is_up:
            node.crash(is_power_lost=self._rng.random() < self._scene.plan.power_share)
            await self._start(node)
