"""A whole fabric in one thread, from a seed to a verdict: nodes, programs, a network and a fault plan.

>>> run(7).problems
[]
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reknit.protocol.dispatch.overflow import AGAIN_PERCENT
from reknit.testing.faults import TOPICS, FaultPlan
from reknit.testing.members import MemberProgram
from reknit.testing.nodes import SimNode
from reknit.testing.programs import Program
from reknit.testing.publishers import PublisherProgram
from reknit.testing.shrink import replay_settings
from reknit.testing.subscribers import LEAVE_S, SubscriberProgram
from reknit.testing.world import Parts, World
from reknit.topic import Pattern, target_of

__all__ = ["Parts", "Simulation", "Verdict", "run"]

REST_S = 600.0
"""How long the fabric may take to become idle once the faults are over, in virtual seconds."""
GRACE_S = 1.0
"""How long it is observed after that."""

QUEUE_PATTERNS = ("plant/**", "plant/a", "**")
PATTERNS = ("**", "plant/**", "plant/*", "plant/a", "reknit/**", "car/*")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a simulation ended."""

    plan: FaultPlan
    problems: list[str]
    steps: int
    events: int
    trace: list[str] = field(default_factory=list)
    """Every step as text, if the run was traced."""

    @property
    def is_good(self) -> bool:
        return not self.problems

    @property
    def command(self) -> str:
        """The command that replays this run."""
        settings = replay_settings(self.plan, FaultPlan.from_seed(self.plan.seed))
        return f"make sim SEED={self.plan.seed}" + (f' SET="{settings}"' if settings else "")

    @property
    def fingerprint(self) -> str:
        """A hash of the trace: the same for the same steps."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class Simulation:
    """A fabric and its run."""

    def __init__(self, plan: FaultPlan, parts: Parts | None = None, is_traced: bool = False) -> None:
        world = self._world = World(plan, parts or Parts(), is_traced)
        self.plan = plan
        self.clock, self.network, self.witness = world.clock, world.network, world.witness
        self._tell = world.tell
        self._faults = world.rng("faults")
        self._moods = world.rng("moods")
        self._cancels = world.rng("cancels")
        self.nodes = [SimNode(f"n{i}", world, world.rng(f"node {i}")) for i in range(plan.nodes)]
        self.witness.watch(self.nodes)
        self.publishers: list[PublisherProgram] = []
        self.subscribers: list[SubscriberProgram] = []
        self._populate(world.rng("fabric"))

    def _populate(self, rng: Random) -> None:
        plan, world = self.plan, self._world
        for i in range(plan.publishers):
            name, node, topic = f"p{i}", rng.choice(self.nodes).name, rng.choice(TOPICS)
            lasting = rng.random() < plan.lasting_share
            self.publishers.append(PublisherProgram(name, node, world, world.rng(name), topic, lasting))
        for i in range(plan.durables + plan.ephemerals):
            durable = i < plan.durables
            name, node = f"{'d' if durable else 'e'}{i}", rng.choice(self.nodes).name
            history, pattern = rng.random() < 0.3, rng.choice(PATTERNS)
            self.subscribers.append(
                SubscriberProgram(name, node, world, world.rng(name), pattern, durable, history)
            )

        self._add_members(world.rng("members"))

    def _add_members(self, rng: Random) -> None:
        """The members of the queue, which is on one node."""
        node, pattern = rng.choice(self.nodes).name, rng.choice(QUEUE_PATTERNS)
        for i in range(self.plan.members):
            name = f"q{i}"
            member = MemberProgram(
                name, node, self._world, self._world.rng(name), pattern, self.plan.queue_order
            )
            self.subscribers.append(member)

    @property
    def programs(self) -> list[Program]:
        return [*self.publishers, *self.subscribers]

    # -- the run

    def run(self) -> Verdict:
        """Run the fabric with its faults, then judge it."""
        try:
            self._run()
        except Exception as error:
            self.witness.blame("".join(traceback.format_exception(error)))
        events = sum(map(len, self.witness.published.confirmed.values()))
        return Verdict(self.plan, self.witness.problems, self.clock.steps, events, self._world.trace)

    def _run(self) -> None:
        problems = self.witness.problems
        self._begin()
        self.clock.run(self.plan.run_s, lambda: bool(problems))
        if not problems:
            self._calm()
            self.clock.run(self.plan.run_s + self.plan.notice_s_max + GRACE_S, lambda: bool(problems))
            self._run_until_idle()
        if not problems:
            self.witness.judge()
            self._blame_the_busy()
        if not problems:
            self._judge_rest()

    def _run_until_idle(self) -> None:
        """Run until the fabric stays idle: a program that has just restarted may only seem idle."""
        problems = self.witness.problems
        deadline = self.clock.now + REST_S
        while self.clock.now < deadline and not problems:
            self.clock.run(deadline, lambda: bool(problems) or self._is_idle())
            self.clock.run(self.clock.now + GRACE_S, lambda: bool(problems))
            if self._is_idle():
                return

    def _begin(self) -> None:
        plan, rng = self.plan, self._faults
        for node in self.nodes:
            node.start()
        for program in self.programs:
            self.clock.after(rng.choice((0.0, rng.uniform(0.0, plan.run_s / 2))), program.start)
        self._repeat(plan.cut_rate, self._cut)
        self._repeat(plan.partition_rate, self._partition)
        self._repeat(plan.node_crash_rate, self._crash_node)
        self._repeat(plan.pause_rate, self._pause)
        self._repeat(plan.supersede_rate, self._supersede)
        self._repeat(plan.letter_rate, self._handle_letters)
        self._repeat(plan.cancel_rate, self._cancel)
        self._repeat(plan.publisher_crash_rate, lambda: self._crash_program(self.publishers))
        self._repeat(plan.subscriber_crash_rate, lambda: self._crash_program(self.subscribers))

    def _repeat(self, rate: float, fault: Callable[[], None]) -> None:
        """Inject a fault at random times until the faults are over."""
        if rate <= 0:
            return

        def happen() -> None:
            if not self._world.is_calm:
                fault()
                self.clock.after(self._faults.expovariate(rate), happen)

        self.clock.after(self._faults.expovariate(rate), happen)

    def _cut(self) -> None:
        self._tell("network", "cut", self.network.cut_any())

    def _partition(self) -> None:
        hosts = [program.name for program in self.programs]
        apart = {host for host in hosts if self._faults.random() < 0.5}
        nodes = {node.name for node in self.nodes}
        one_way = self._faults.random() < self.plan.one_way_share
        ones, others = (apart, nodes) if self._faults.random() < 0.5 else (nodes, apart)
        self._tell("network", "partition", sorted(ones), "to" if one_way else "and", sorted(others))
        self.network.partition(ones, others, one_way)
        self.clock.after(self._faults.uniform(0.0, self.plan.partition_s_max), self._heal)

    def _heal(self) -> None:
        self._tell("network", "heals")
        self.network.heal()

    def _pause(self) -> None:
        """Pause topics on a node, and resume them a little later, if it is up then."""
        node, pattern = self._moods.choice(self.nodes), self._moods.choice(PATTERNS)
        if node.is_up:
            node.pause(pattern)
            delay_s = self._moods.uniform(0.0, self.plan.pause_s_max)
            self.clock.after(delay_s, lambda: node.resume(pattern) if node.is_up else None)

    def _handle_letters(self) -> None:
        """An operator redrives or drops some dead letters."""
        node = self._moods.choice(self.nodes)
        what, limit = self._moods.choice(("redrive", "drop")), self._moods.choice((1, 5, 1000))
        if node.is_up:
            to = "subscriber" if limit == 5 else "all"
            node.order(what, limit=limit, to=to)

    def _cancel(self) -> None:
        """An operator cancels some scheduled events."""
        node = self._cancels.choice(self.nodes)
        if node.is_up:
            rows = node.core.scheduling.page({})["events"]
            ids = [row["id"] for row in rows if self._cancels.random() < 0.3]
            self.witness.scheduled.cancelling(node.name, ids)
            node.order("cancel", pattern="**", ids=ids)

    def _supersede(self) -> None:
        """A second program starts under the name of a lasting publisher that runs, and is connected."""
        running = [
            one for one in self.publishers if one.lasting and one.is_connected and not one.is_superseded
        ]
        if not running:
            return
        old = self._moods.choice(running)
        name = f"{old.source}+{len(self.publishers)}"
        rng = self._world.rng(name)
        topic = target_of(old.topic)
        new = PublisherProgram(name, old.node, self._world, rng, topic, True, old.source)
        self._tell("all", name, "takes over from", old.name)
        self.publishers.append(new)
        old.supersede()
        new.start()

    def _crash_node(self) -> None:
        node = self._faults.choice(self.nodes)
        if node.is_up:
            node.crash()
            self.clock.after(self._faults.uniform(0.0, self.plan.node_down_s_max), lambda: _start(node))

    def _crash_program(self, programs: list[Any]) -> None:
        if not programs:
            return
        program: Program = self._faults.choice(programs)
        if not program.is_up:
            return
        down_s = self._faults.uniform(0.0, self.plan.program_down_s_max)
        if isinstance(program, SubscriberProgram) and self._moods.random() < self.plan.leave_share:
            program.leave(forget=self._moods.random() < 0.3)
            down_s += LEAVE_S
        else:
            program.crash()
        self.clock.after(down_s, lambda: _start(program))

    def _calm(self) -> None:
        """End the faults: heal the network, start everything, and resume all topics."""
        self._tell("all", "faults end")
        self._world.end_faults()
        self.network.heal()
        for node in self.nodes:
            _start(node)
            for pattern in node.paused:
                node.resume(pattern)
        for program in self.programs:
            _start(program)

    def _is_idle(self) -> bool:
        if self._busy_programs() or any(node.is_busy for node in self.nodes):
            return False
        retired = {program.name for program in self.subscribers if program.is_retired}
        rows = [row for node in self.nodes for row in node.journal.ledger.rows()]
        return not any(row.in_flight for row in rows if row.subscriber not in retired)

    def _blame_the_busy(self) -> None:
        for program in self._busy_programs():
            self.witness.blame(f"{program.name} was not idle after {REST_S:.0f} s")

    def _busy_programs(self) -> list[Program]:
        return [program for program in self.programs if not program.is_done and not self._may_wait(program)]

    def _may_wait(self, program: Program) -> bool:
        """Whether a publisher may wait for ever: for a durable subscriber that left, and whose node was never told so.

        That is what an operator chooses with `overflow = "withhold"`: the queue was full, and nobody empties it to the
        share at which publishers continue.
        """
        events_max = self.plan.queue_events_max
        if not events_max or self.plan.overflow != "withhold" or not isinstance(program, PublisherProgram):
            return False
        [ledger] = [node.journal.ledger for node in self.nodes if node.name == program.node]
        waiting: Counter[str] = Counter()
        for row in ledger.rows():
            waiting[row.subscriber] += row.in_flight
        too_many = events_max * AGAIN_PERCENT // 100
        gone = [one for one in self.subscribers if one.node == program.node and one.is_retired]
        return any(
            Pattern(one.pattern).matches(program.topic) and waiting[one.name] > too_many for one in gone
        )

    def _judge_rest(self) -> None:
        for node in self.nodes:
            here = [one for one in self.subscribers if one.node == node.name and one.is_up]
            queues = {subscriber.queue_key for subscriber in here}
            node.judge_rest(len(queues))
            for subscriber in here:
                subscriber.judge_rest(node.core.dispatch.queues.get(subscriber.queue_key))
        for publisher in self.publishers:
            if publisher.is_up and not self._may_wait(publisher):
                publisher.judge_rest()


def _start(member: SimNode | Program) -> None:
    if not member.is_up and not (isinstance(member, Program) and member.is_retired):
        member.start()


def run_plan(plan: FaultPlan, parts: Parts | None = None, is_traced: bool = False) -> Verdict:
    """Run the fabric of a plan."""
    return Simulation(plan, parts, is_traced).run()


def run(seed: int, parts: Parts | None = None, is_traced: bool = False) -> Verdict:
    """Run the fabric of a seed."""
    return Simulation(FaultPlan.from_seed(seed), parts, is_traced).run()
