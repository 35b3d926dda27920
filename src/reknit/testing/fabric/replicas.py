"""Nodes beside a fabric that get its events over relays, bridges or alignment, one from the other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, Literal

from reknit.config import Config, HttpSettings
from reknit.errors import Refused
from reknit.outcome import Code
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.plans.plan import Feed
from reknit.testing.fabric.programs.program import CLIENT, ListeningProgram, Program, Scene
from reknit.testing.fabric.programs.publishers import PublishingProgram
from reknit.testing.fabric.programs.subscribers import SubscribingProgram

PATTERN: Final = "plant/**"
ALIGN_S: Final = 0.5
LOOK_S: Final = 0.1


async def start_outposts(scene: Scene) -> list[Program]:
    """Start the nodes beside the fabric; returns the programs that connect them, and their subscribers."""
    plan, rng = scene.plan, scene.fabric.rng("replicas")
    nodes = list(scene.fabric.nodes.values())
    upstream, made = rng.choice(nodes), list[Program]()
    for at, feed in enumerate(plan.feeds):
        outpost = scene.fabric.node(f"o{at}")
        scene.outposts.append(outpost.name)
        kind: Literal["disk", "memory"] = "memory" if rng.random() < plan.memory_share else "disk"
        outpost.configure(_config(nodes[0].config, kind, feed, upstream))
        await outpost.start()
        made.append(FeedingProgram(scene, f"feed{at}", upstream, outpost, feed))
        made.append(SubscribingProgram(scene, f"od{at}", outpost, PATTERN, is_durable=True))
        upstream = outpost
    if plan.feeds and plan.is_ring:
        made.append(FeedingProgram(scene, "back", upstream, rng.choice(nodes), "push"))
        made.append(PublishingProgram(scene, "op", scene.fabric.nodes["o0"], "plant/b", rng.random() < 0.5))
    return made


def _config(config: Config, kind: Literal["disk", "memory"], feed: Feed, upstream: FabricNode) -> Config:
    recovery = config.recovery
    if feed == "relay":
        recovery = replace(recovery, relays=(f"{upstream.url}={PATTERN}",))
    elif feed == "align":
        recovery = replace(recovery, caches=(upstream.url,), align_s=ALIGN_S)
    journal = replace(config.journal, kind=kind)
    plain = tuple(rule for rule in config.topics if rule.distribution == "journal")  # nobody works here
    return replace(
        config,
        links=replace(config.links, to=()),
        recovery=recovery,
        journal=journal,
        http=HttpSettings(),
        topics=plain,
    )


class FeedingProgram(ListeningProgram):
    """Adds a bridge, if the feed is one, and is open when the first node knows what it owes to the second."""

    def __init__(
        self, scene: Scene, name: str, upstream: FabricNode, downstream: FabricNode, feed: Feed
    ) -> None:
        super().__init__(scene, name, upstream)
        self.upstream, self.downstream, self.feed = upstream, downstream, feed
        scene.feeds.append((upstream.name, downstream.name, feed))

    async def live(self) -> None:
        match self.feed:
            case "push":
                await self._add_route(self.upstream, "here", self.downstream.url)
            case "pull":
                await self._add_route(self.downstream, self.upstream.url, "here")
            case "align":  # a subscriber makes the node store everything that is published elsewhere
                async with (
                    self.session() as session,
                    session.subscribe(PATTERN, name=f"aligned {self.name}") as events,
                ):
                    self.is_open = True
                    async for _ in events:
                        pass
            case "relay":
                await self._be_owed(f"relay/{self.downstream.name}/{PATTERN}")
        self.is_open = True

    async def _add_route(self, node: FabricNode, source: str, target: str) -> None:
        try:
            async with self.scene.fabric.session(node.url, config=CLIENT, wait_s=30.0) as session:
                await session.add_route(source, target, PATTERN)
        except Refused as error:
            if error.code != Code.ALREADY_EXISTS:
                raise
        await self._be_owed(f"route/{node.name}/{target}/{PATTERN}")

    async def _be_owed(self, name: str) -> None:
        while name not in self.upstream.node.journal.ledger.accounts:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(LOOK_S)
