"""A whole fabric from a seed to a verdict: nodes, programs, a network and a plan of faults.

>>> run(7).problems
[]
"""

from __future__ import annotations

import asyncio
import traceback
import zlib
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from reknit.config import (
    Config,
    DispatchSettings,
    JournalSettings,
    LinkSettings,
    RecoverySettings,
    TopicSettings,
    TransportSettings,
)
from reknit.testing.fabric import gateways
from reknit.testing.fabric.checks.commits import CommitWatch, has_staged
from reknit.testing.fabric.checks.events import judge, owed_events_arrive
from reknit.testing.fabric.checks.gateways import is_hostile, tunnels_resume
from reknit.testing.fabric.checks.groups import GROUP_CHECKS
from reknit.testing.fabric.checks.rest import nodes_forget
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.faults import Faults
from reknit.testing.fabric.identities import security
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.administration import operators
from reknit.testing.fabric.programs.blocking import blocking_programs
from reknit.testing.fabric.programs.caches import recovering_programs
from reknit.testing.fabric.programs.callers import calling_programs
from reknit.testing.fabric.programs.groups import group_members
from reknit.testing.fabric.programs.observers import observers
from reknit.testing.fabric.programs.program import ListeningProgram, Program, Scene
from reknit.testing.fabric.programs.publishers import PublishingProgram
from reknit.testing.fabric.programs.queues import QueueMember, queue_members
from reknit.testing.fabric.programs.services import RequestingProgram, ServingProgram
from reknit.testing.fabric.programs.streams import film_makers
from reknit.testing.fabric.programs.subscribers import SubscribingProgram
from reknit.testing.fabric.programs.tenants.tenants import tenant_programs
from reknit.testing.fabric.programs.workers import SendingProgram, WorkingProgram
from reknit.testing.fabric.replicas import start_outposts
from reknit.testing.fabric.rules import with_rules
from reknit.testing.fabric.virtual.logs import tracebacks
from reknit.testing.shrink import replay_settings
from reknit.topic import Pattern

Listening = SubscribingProgram | WorkingProgram | QueueMember | ServingProgram | ListeningProgram
"""A program that is ready before others begin."""
TOPICS: Final = ("plant/a", "plant/b", "car/1")
PATTERNS: Final = ("plant/**", "plant/a", "car/*", "plant/*")
JOBS: Final = "jobs/x"
READY_S: Final = 60.0
ANNOUNCE_S: Final = 2.0
"""Subscriptions are announced to other nodes with the next heartbeats."""
REST_S: Final = 300.0
"""How long the fabric may take to come to rest once the faults are over, in virtual seconds."""
LOOK_S: Final = 0.25
GRACE_S: Final = 1.0
"""How long it is observed at rest: nothing may happen any more that breaks a promise."""


@dataclass(frozen=True, slots=True)
class FabricVerdict:
    """How the simulation of a fabric ended."""

    plan: FabricPlan
    problems: list[str]
    steps: int
    events: int
    virtual_s: float
    trace: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    """The parts of the plan that this machine can't run."""

    @property
    def is_good(self) -> bool:
        return not self.problems

    @property
    def fingerprint(self) -> int:
        """A checksum of the trace, which must have been asked for."""
        return zlib.crc32("\n".join(self.trace).encode())

    @property
    def command(self) -> str:
        """The command that replays this run."""
        small, large = (
            replay_settings(self.plan, drawn(self.plan.seed))
            for drawn in (FabricPlan.from_seed, FabricPlan.large)
        )
        kind, settings = ("LARGE", large) if len(large) < len(small) else ("FABRIC", small)
        return f"make sim {kind}=1 SEED={self.plan.seed}" + (f' SET="{settings}"' if settings else "")


class FabricSimulation:
    """Builds a fabric as its plan says, runs it with its faults, and judges it."""

    def __init__(self, fabric: Fabric, plan: FabricPlan) -> None:
        self.fabric, self.plan = fabric, plan
        self.scene = Scene(fabric, plan)
        self.programs: list[Program] = []
        self._listeners: list[Listening] = []
        has_bad_disks = bool(plan.stall_s_max or plan.full_rate or plan.sync_failure_rate)
        self._commits = CommitWatch(fabric.nodes, has_bad_disks)

    async def run(self) -> list[str]:
        """The problems, at the end."""
        rng = self.fabric.rng("scene")
        await self.start_nodes(rng)
        self._make_programs(rng)
        self._add(await start_outposts(self.scene))
        self._add(group_members(self.scene) + recovering_programs(self.scene))
        faults = Faults(self.scene, self.programs)
        try:
            await self._be_ready()
            faults.start()
            for program in self.programs:
                if program not in self._listeners:
                    program.start()
            await self._watch(self.plan.run_s)
            self.scene.calm_down()
            await faults.stop()
            self.scene.calm_at = faults.over_at()
            if not await self._rest():
                self.scene.record.blame(f"the fabric was not at rest after {REST_S:.0f} s: {self._busy()}")
        except Exception as error:
            self.scene.record.blame("".join(traceback.format_exception(error)))
        try:
            return self.scene.record.problems + judge(self.scene)
        except AttributeError:  # a node that could not start can't be judged
            if not self.scene.record.problems:
                raise
            return self.scene.record.problems

    # -- building

    async def start_nodes(self, rng: Random) -> None:
        urls: list[str] = []
        for at in range(self.plan.nodes):
            node = self.fabric.node(f"n{at}")
            node.configure(self._config(rng, at, urls))
            urls.append(node.url)
            node.on_start(partial(self._search_in_steps, node))
            await node.start()

    def _search_in_steps(self, node: FabricNode) -> None:
        step, core = self.plan.search_step, node.node.core
        if step:
            core.openings.step_cost = core.recovery.walks.step = step

    def _config(self, rng: Random, at: int, urls: list[str]) -> Config:
        links = [urls[other] for other in self._neighbours(at)]
        config = Config(
            journal=JournalSettings(
                kind="memory" if rng.random() < self.plan.memory_share else "disk",
                segment_bytes=self.plan.segment_bytes,
                index_interval_s=rng.choice((0.5, 5.0)),
            ),
            transport=TransportSettings(heartbeat_s=0.5, peer_timeout_s=2.0, hello_timeout_s=2.0),
            links=LinkSettings(
                to=tuple(f"{url}={rng.randint(1, self.plan.cost_max)}" for url in links),
                beat_s=0.5,
                timeout_s=2.0,
                heal_s=self.plan.heal_s,
            ),
            dispatch=DispatchSettings(retry_backoff_s_min=0.05, retry_backoff_s_max=0.5),
            recovery=RecoverySettings(ask_timeout_s=0.5),
            topics=(TopicSettings(pattern=Pattern("jobs/**"), distribution="balanced"),),
            **gateways.settings(self.plan, self.fabric.rng(f"gateways {at}")),
            **security(self.plan, self.fabric.folder),
        )
        return with_rules(config, self.plan)

    def _neighbours(self, at: int) -> list[int]:
        """The earlier nodes that a node links to."""
        last = self.plan.nodes - 1
        match self.plan.shape:
            case "mesh":
                return list(range(at))
            case "chain":
                return [at - 1] if at else []
            case "ring":
                return ([at - 1] if at else []) + ([0] if at == last and at > 1 else [])
            case "star":
                return [0] if at else []

    def _make_programs(self, rng: Random) -> None:
        plan, scene, nodes = self.plan, self.scene, list(self.fabric.nodes.values())

        def some() -> FabricNode:
            return rng.choice(nodes)

        for at in range(plan.durables + plan.ephemerals):
            is_durable = at < plan.durables
            name = f"{'d' if is_durable else 'e'}{at}"
            self._listen(SubscribingProgram(scene, name, some(), rng.choice(PATTERNS), is_durable))
        if plan.senders:
            for at in range(plan.workers):
                self._listen(WorkingProgram(scene, f"w{at}", some(), "jobs/**"))
        for at in range(plan.services if plan.requesters else 0):
            self._listen(ServingProgram(scene, f"s{at}", some()))
        for at in range(plan.publishers):
            is_lasting = rng.random() < plan.lasting_share
            self.programs.append(PublishingProgram(scene, f"p{at}", some(), rng.choice(TOPICS), is_lasting))
        for at in range(plan.senders if plan.workers else 0):
            is_resent = rng.random() < plan.resend_share
            self.programs.append(SendingProgram(scene, f"j{at}", some(), JOBS, is_resent))
        for at in range(plan.requesters):
            self.programs.append(RequestingProgram(scene, f"r{at}", some()))
        self._add([*operators(scene), *film_makers(scene), *gateways.programs(scene)])
        self._add([*blocking_programs(scene), *observers(scene)])
        self._add([*tenant_programs(scene), *calling_programs(scene), *queue_members(scene)])

    def _add(self, programs: list[Program]) -> None:
        for program in programs:
            if isinstance(program, Listening):
                self._listen(program)
            else:
                self.programs.append(program)

    def _listen(self, program: Listening) -> None:
        self.programs.append(program)
        self._listeners.append(program)

    # -- running

    async def _be_ready(self) -> None:
        """Start all subscribers, and wait until all nodes know of each other and of them."""
        for program in self._listeners:
            program.start()
        deadline = self.fabric.loop.now + READY_S
        while not (all(one.is_open for one in self._listeners) and self.is_linked()):
            if self.fabric.loop.now > deadline:
                raise RuntimeError("the fabric was never ready")
            await asyncio.sleep(LOOK_S)
        await self._watch(ANNOUNCE_S)
        for seen in self.scene.record.seen.values():
            seen.ready_at = self.fabric.loop.now

    def is_linked(self) -> bool:
        """Whether every node reaches every other one, but for those beside the fabric."""
        nodes = [node for node in self.fabric.nodes.values() if node.name not in self.scene.outposts]
        return all(len(node.node.links.routes.reachable()) >= len(nodes) - 1 for node in nodes)

    async def _watch(self, seconds: float) -> None:
        """Let things happen for so long. Commits go on meanwhile, unless disks fail."""
        end = self.fabric.loop.now + seconds
        while (left_s := end - self.fabric.loop.now) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))
            if not self._commits.has_bad_disks:
                self._look_at_commits()

    def _look_at_commits(self) -> None:
        self.scene.record.problems += self._commits.look(self.fabric.loop.now)

    async def _rest(self) -> bool:
        """Wait until nothing is to be expected any more. False if that takes too long."""
        deadline = self.fabric.loop.now + REST_S
        while self.fabric.loop.now < deadline and not self.scene.record.problems:
            await asyncio.sleep(LOOK_S)
            if not self.scene.linked_at and self.is_linked():
                self.scene.linked_at = self.fabric.loop.now
            self._look_at_commits()
            if self._busy() == "":
                await asyncio.sleep(GRACE_S)
                if self._busy() == "":
                    return True
        return False

    def _busy(self) -> str:
        """What is not at rest yet; empty if everything is."""
        for program in self.programs:
            if not program.is_done:
                return f"{program.name} waits"
        for node in self.fabric.nodes.values():
            if has_staged(node):
                return f"{node.name} has staged entries"
            for row in node.node.journal.ledger.rows(node.node.in_hand()):
                if row.in_flight and not is_hostile(row.topic):
                    return f"{node.name} has events in flight: {row}"
        if self.is_linked():
            waited = (owed_events_arrive, tunnels_resume, *GROUP_CHECKS, nodes_forget)
            return next((problem for check in waited for problem in check(self.scene)), "")
        return "not every node is reachable"


def run(seed: int, *, is_traced: bool = False, plan: FabricPlan | None = None) -> FabricVerdict:
    """Run the fabric of a seed, or of a changed plan."""
    plan = plan or FabricPlan.from_seed(seed)
    with Fabric(plan.seed, is_traced=is_traced) as fabric:
        simulation = FabricSimulation(fabric, plan)
        with tracebacks(fabric.logged):
            problems = fabric.run(simulation.run())
        network, loop = fabric.network, fabric.loop
        events = sum(sent.is_stored or bool(sent.result) for sent in simulation.scene.record.sent.values())
        return FabricVerdict(
            plan,
            problems,
            loop.steps,
            events,
            loop.now,
            network.lines or [],
            gateways.left_out(plan),
        )
