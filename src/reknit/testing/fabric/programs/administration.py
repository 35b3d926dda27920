"""A program of an operator: pauses and resumes topics, redrives and drops dead letters, adds and removes links."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from reknit.client import dead_letters
from reknit.dead_letter import DeadLetterFilter
from reknit.errors import Refused
from reknit.outcome import Code
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import AGAIN_S, CLIENT, EXPECTED, Program, Scene

PATTERNS = ("plant/**", "plant/a", "car/*")


def operators(scene: Scene) -> list[Program]:
    """The operator of a plan in which there is something to do."""
    plan = scene.plan
    if not (plan.pause_rate or plan.redrive_rate or plan.drop_rate or plan.link_rate):
        return []
    return [OperatingProgram(scene, "operator", next(iter(scene.fabric.nodes.values())))]


class OperatingProgram(Program):
    """Makes admin requests to any node, and undoes in the end what others would wait for."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._paused: dict[tuple[str, str], None] = {}
        """Node and pattern."""
        self._unlinked: dict[tuple[str, str], None] = {}
        """Node and link."""
        self._is_restored = False

    @property
    def is_done(self) -> bool:
        return self._is_restored

    async def live(self) -> None:
        plan = self.scene.plan
        async with asyncio.TaskGroup() as acting:
            for rate, act in (
                (plan.pause_rate, self._pause),
                (plan.redrive_rate, self._redrive),
                (plan.drop_rate, self._drop),
                (plan.link_rate, self._change_link),
            ):
                if rate:
                    acting.create_task(self._repeat(rate, act))
        if plan.pause_rate and plan.replace_rate:
            await self._find_old_pauses()
        while self._paused or self._unlinked:
            await self._restore()
        self._is_restored = True

    async def _repeat(self, rate: float, act: Callable[[FabricNode], Awaitable[None]]) -> None:
        nodes = list(self.scene.fabric.nodes.values())
        while not self.scene.is_calm:
            await self.scene.sleep_until_calm(self.rng.expovariate(rate))
            if not self.scene.is_calm:
                with suppress(*EXPECTED):  # an operator tries something else
                    await act(self.rng.choice(nodes))

    def _at(self, node: FabricNode) -> Any:
        return self.scene.fabric.session(node.url, config=CLIENT, wait_s=2.0)

    # -- topics

    async def _pause(self, node: FabricNode) -> None:
        pattern = self.rng.choice(PATTERNS)
        self._paused[node.name, pattern] = None
        async with self._at(node) as session:
            await session.pause(pattern)
        await self.scene.sleep_until_calm(self.rng.uniform(0.0, self.scene.plan.pause_s_max))
        await self._resume(node, pattern)

    async def _resume(self, node: FabricNode, pattern: str) -> None:
        async with self._at(node) as session:
            await session.resume(pattern)
        self._paused.pop((node.name, pattern), None)

    # -- dead letters

    async def _redrive(self, node: FabricNode) -> None:
        wanted = DeadLetterFilter(topic=self.rng.choice(PATTERNS))
        is_narrow = self.rng.random() < 0.5
        options = {"clears_ttl": is_narrow, "to_subscriber": is_narrow}
        async with self._at(node) as session:
            await self._handle(node, dead_letters.redrive(session, wanted, **options))

    async def _drop(self, node: FabricNode) -> None:
        wanted = DeadLetterFilter(topic=self.rng.choice(PATTERNS))
        async with self._at(node) as session:
            await self._handle(node, dead_letters.drop(session, wanted))

    async def _handle(self, node: FabricNode, pages: AsyncIterator[dict[str, Any]]) -> None:
        record = self.scene.record
        record.read_letters(node)
        async for _ in pages:
            record.read_letters(node)

    # -- links

    async def _change_link(self, node: FabricNode) -> None:
        linked = [one for one in self.scene.fabric.nodes.values() if one.name not in self.scene.outposts]
        others = [one for one in linked if one is not node]
        if node not in linked or not others:
            return
        other = self.rng.choice(others).url
        links = {text.partition("=")[0]: text for text in node.config.links.to}
        async with self._at(node) as session:
            if other not in links:  # one more, from now on
                await _unless(Code.ALREADY_EXISTS, session.ask("link_add", to=other))
                return
            self._unlinked[node.name, links[other]] = None
            await _unless(Code.NOT_FOUND, session.ask("link_remove", to=other))
        await self.scene.sleep_until_calm(self.rng.uniform(0.0, self.scene.plan.away_s_max))
        await self._link(node, links[other])

    async def _link(self, node: FabricNode, link: str) -> None:
        async with self._at(node) as session:
            await _unless(Code.ALREADY_EXISTS, session.ask("link_add", to=link))
        self._unlinked.pop((node.name, link), None)

    # -- the end

    async def _find_old_pauses(self) -> None:
        """A node whose disk was replaced by an older copy pauses again what was paused then."""
        while not self.scene.calm_at:  # noqa: ASYNC110  (it is set once, after the last fault)
            await asyncio.sleep(AGAIN_S)
        for one in self.scene.replaced:
            self._paused |= dict.fromkeys((one.node, pattern) for pattern in PATTERNS)

    async def _restore(self) -> None:
        nodes = self.scene.fabric.nodes
        for name, pattern in list(self._paused):
            await self._resume(nodes[name], pattern)
        for name, link in list(self._unlinked):
            await self._link(nodes[name], link)


async def _unless(code: Code, request: Awaitable[Any]) -> None:
    """Make a request that may have been carried out before."""
    try:
        await request
    except Refused as error:
        if error.code != code:
            raise
