"""Every fault of a simulation, and how often it happens: one frozen plan, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal

from reknit.queue_order import QueueOrder
from reknit.testing.fault_families import family_fields

TOPICS: Final = ("plant/a", "plant/b", "car/1")
ORDERED_TOPIC: Final = "plant/a"
"""The topic that is ordered, if any is."""
ORDERED_ATTEMPTS_MAX: Final = 6
ArchiveKind = Literal["", "whole", "part", "silent"]
Overflow = Literal["withhold", "refuse_newest", "drop_oldest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Every parameter of a simulation. A rate is per second of the run; a share is a probability.

    It has more than 60 fields because all faults are in one place: a replay prints the whole plan as one value,
    and a test sets a single field.

    >>> FaultPlan.from_seed(7) == FaultPlan.from_seed(7)
    True
    >>> FaultPlan(seed=1).cut_rate
    0.0
    """

    seed: int

    # the fabric
    nodes: int = 1
    publishers: int = 2
    lasting_share: float = 0.5
    """Publishers with a name, which keep their source when the program restarts."""
    durables: int = 2
    ephemerals: int = 1
    members: int = 0
    """Programs that share a queue."""
    queue_order: QueueOrder = ""
    """What these say that their queue keeps in order."""
    search_step: int = 0
    """How much nodes search for starts of subscriptions in one step; 0 is all at once, as far as it goes here."""
    run_s: float = 6.0
    """How long faults happen and programs publish. Afterwards everything must become idle."""

    # programs
    put_rate: float = 8.0
    burst_max: int = 6
    payload_bytes_max: int = 120
    think_s_max: float = 0.1
    """How long an application takes to process a batch."""
    credit_bytes: int = 4096
    recover_share: float = 1.0
    """Ephemeral subscribers that recover gaps, as those of a session do."""
    accept: float = 1.0
    release: float = 0.0
    fail: float = 0.0
    reject: float = 0.0
    """The weights of an application's dispositions."""
    poison_every: int = 0
    """Applications fail at every event whose seq is a multiple of this; 0 is at none."""
    lethal_every: int = 0
    """The process of a durable subscriber dies of every event whose seq is a multiple of this; 0 is of none."""
    crash_attempts_max: int = 0
    """After how many deaths of an event its node makes it a dead letter; 0 is never."""
    recut_share: float = 0.0
    """Repetitions by publishers that cut the events into other batches, and begin with events that are acknowledged."""
    supersede_rate: float = 0.0
    """Second programs that start under the name of a publisher that still runs."""
    priorities: bool = False
    """Whether publishers have different priorities."""
    attempts_max: int = 0
    hang: float = 0.0
    """Batches that an application takes and never settles, if there are leases."""

    # dispatching
    lease_s: float = 0.0
    ttl_ms: int = 0
    """The ttl of all events; 0 is for ever."""
    is_ordered: bool = False
    """Whether an event of one topic waits until those before it have ended."""
    pause_rate: float = 0.0
    pause_s_max: float = 1.0
    queue_events_max: int = 0
    """How many events may wait for a durable subscriber; 0 is any number."""
    overflow: Overflow = "withhold"
    """What happens beyond that."""
    quota_events_per_s: int = 0
    """How fast all publishers of a node together may publish; 0 is as fast as they can. No seed draws it."""
    letter_rate: float = 0.0
    """Operators that redrive or drop some dead letters."""

    schedule_share: float = 0.0
    """Publishers whose events are to be published later."""
    schedule_s_max: float = 2.0
    """How much later."""
    cancel_rate: float = 0.0
    """Operators that cancel some scheduled events."""

    # the network
    delay_s_min: float = 0.001
    delay_s_max: float = 0.02
    split_share: float = 0.0
    """Sends that arrive in two pieces."""
    cut_rate: float = 0.0
    """Connections that break, with data in flight."""
    partition_rate: float = 0.0
    partition_s_max: float = 2.0
    one_way_share: float = 0.3
    """Partitions that stop one direction only."""
    notice_s_max: float = 1.0
    """How long a side takes to notice that its connection is broken."""
    buffer_bytes: int = 1 << 16
    """How much a connection buffers before its sender is told to wait."""
    reconnect_s_max: float = 0.3
    loss_share: float = 0.0
    duplicate_share: float = 0.0
    reorder_share: float = 0.0
    """Datagrams that get lost, arrive twice, or arrive late."""

    # beginnings, ends and gaps
    opening_puts: int = 0
    """How many batches a publisher sends at once when it starts."""
    puts_max: int = 0
    """How many batches a publisher sends before it loses its connection, and sends no more; 0 is any number."""
    unsent_share: float = 0.0
    """Batches of a publisher that do not reach the node, so that it has to ask for them."""
    missed_share: float = 0.0
    """Deliveries that do not reach a subscriber without a name, as on a group that is overloaded."""
    repeat_share: float = 0.0
    """Deliveries of events that came before, and reports of losses that come twice."""
    archive: ArchiveKind = ""
    """A second cache, if any: with all events, with some of them, or one that never answers."""
    archive_s_max: float = 0.05
    """How long it takes to answer."""
    hold_events_max: int = 200
    """How many events of a series a subscriber holds behind a gap."""

    # crashes
    node_crash_rate: float = 0.0
    node_down_s_max: float = 1.0
    publisher_crash_rate: float = 0.0
    subscriber_crash_rate: float = 0.0
    leave_share: float = 0.0
    """Subscribers that unsubscribe instead of crashing; some ask to be forgotten."""
    program_down_s_max: float = 1.0
    unsynced_survives_share: float = 0.5
    """Crashes of a node during a commit in which the commit reached the disk."""

    # the journal
    commit_s_max: float = 0.01
    commit_failure_share: float = 0.0
    staged_bytes_max: int = 1 << 20
    segment_bytes: int = 4096
    memory_topics: bool = False
    """Whether one topic is stored without sync. Then nodes are killed but do not lose power: written data survives."""
    retain_events: int = 0
    """The number of events that retention keeps; 0 is all."""
    retain_owed: bool = True
    """Whether retention spares events that a durable subscriber is still owed."""
    trim_s: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> FaultPlan:
        """The plan of a seed: drawn field by field, or with the fields of its family."""
        return replace(cls.drawn(seed), **family_fields(seed))

    @classmethod
    def drawn(cls, seed: int) -> FaultPlan:
        """A plan that has each kind of fault or not: a few faults at a time find more bugs than all at once."""
        draw = PlanDraw(seed)
        # The order of the draws is part of every seed. New fields are drawn last, so that old seeds keep their plans.
        return cls(
            seed=seed,
            **draw.fabric(),
            **draw.programs(),
            **draw.network(),
            **draw.crashes(),
            **draw.journal(),
            **draw.later_fields(),
            **draw.newest_fields(),
            **draw.gaps(),
            **draw.deaths(),
            **draw.schedules(),
            **draw.queues(),
        )

    def attempts_max_of(self, topic: str) -> int:
        """How often events on a topic are tried; 0 is without a limit."""
        is_ordered = self.is_ordered and topic == ORDERED_TOPIC
        return ORDERED_ATTEMPTS_MAX if is_ordered else self.attempts_max

    @property
    def can_ask_nodes(self) -> bool:
        """Whether a node is never away for so long that a subscriber loses patience."""
        is_away = self.partition_rate or self.node_crash_rate
        return not is_away and (not self.cut_rate or self.notice_s_max < 0.1)

    @property
    def credit_bytes_max(self) -> float:
        """How many bytes may wait for an application before the batch that came last.

        A node estimates the size of batches that it delivers in parts, and delivers ordered events as one unit.
        """
        is_ordered = self.is_ordered or (self.members and self.queue_order)
        if is_ordered or self.pause_rate or self.lease_s:
            return float("inf")
        return self.credit_bytes + 2 * self.burst_max * (self.payload_bytes_max + 100)


class PlanDraw:
    """Draws the fields of a plan from a seed, in a fixed order."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"plan {seed}")

    def _some(self, share: float, low: float, high: float) -> float:
        """An amount between two limits with a probability of `share`, otherwise 0. It always draws twice."""
        amount = self._rng.uniform(low, high)
        return amount if self._rng.random() < share else 0.0

    def fabric(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "nodes": rng.choice((1, 1, 1, 2)),
            "publishers": rng.randint(1, 3),
            "lasting_share": rng.choice((0.0, 0.5, 1.0)),
            "durables": rng.randint(0, 3),
            "ephemerals": rng.randint(0, 2),
            "run_s": rng.uniform(2.0, 8.0),
        }

    def programs(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "put_rate": rng.uniform(2.0, 15.0),
            "burst_max": rng.choice((1, 4, 12)),
            "payload_bytes_max": rng.choice((8, 100, 600)),
            "think_s_max": rng.choice((0.0, 0.02, 0.3)),
            "credit_bytes": rng.choice((300, 2048, 1 << 20)),
            "release": self._some(0.4, 0.0, 0.4),
            "fail": self._some(0.4, 0.0, 0.4),
            "reject": self._some(0.4, 0.0, 0.2),
            "attempts_max": rng.choice((0, 0, 2, 4)),
        }

    def network(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "delay_s_max": rng.choice((0.002, 0.02, 0.2)),
            "split_share": self._some(0.4, 0.0, 0.4),
            "cut_rate": self._some(0.6, 0.1, 2.0),
            "partition_rate": self._some(0.4, 0.1, 0.7),
            "partition_s_max": rng.uniform(0.2, 3.0),
            "notice_s_max": rng.choice((0.01, 0.5, 2.0)),
            "buffer_bytes": rng.choice((600, 1 << 16)),
        }

    def crashes(self) -> dict[str, Any]:
        return {
            "node_crash_rate": self._some(0.5, 0.1, 0.8),
            "publisher_crash_rate": self._some(0.4, 0.1, 0.6),
            "subscriber_crash_rate": self._some(0.4, 0.1, 0.8),
        }

    def journal(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "commit_s_max": rng.choice((0.0, 0.01, 0.3)),
            "commit_failure_share": self._some(0.2, 0.05, 0.5),
            "staged_bytes_max": rng.choice((1024, 1 << 20, 1 << 20)),
            "segment_bytes": rng.choice((512, 4096)),
            "retain_events": rng.choice((0, 0, 20, 100)),
            "retain_owed": rng.random() < 0.6,
        }

    def later_fields(self) -> dict[str, Any]:
        """The fields that were added later, of any kind."""
        rng = self._rng
        return {
            "recover_share": rng.choice((0.0, 1.0)),
            "leave_share": self._some(0.5, 0.2, 0.8),
            "memory_topics": rng.random() < 0.3,
            "lease_s": self._some(0.25, 0.2, 1.0),
            "hang": rng.choice((0.0, 0.1, 0.4)),
            "ttl_ms": int(self._some(0.25, 100, 3000)),
            "is_ordered": rng.random() < 0.3,
            "pause_rate": self._some(0.3, 0.2, 1.5),
            "pause_s_max": rng.uniform(0.1, 2.0),
        }

    def newest_fields(self) -> dict[str, Any]:
        """The fields that were added after those."""
        rng = self._rng
        return {
            "recut_share": rng.choice((0.0, 0.0, 0.5, 1.0)),
            "supersede_rate": self._some(0.35, 0.1, 0.8),
            "priorities": rng.random() < 0.2,
            "queue_events_max": int(self._some(0.2, 5, 60)),
            "overflow": rng.choice(("withhold", "refuse_newest", "drop_oldest")),
            "letter_rate": self._some(0.4, 0.3, 2.0),
            "poison_every": rng.choice((0, 0, 0, 4, 11)),
        }

    def gaps(self) -> dict[str, Any]:
        """The fields about beginnings, ends and gaps, which were added later still."""
        rng = self._rng
        return {
            "missed_share": self._some(0.4, 0.02, 0.4),
            "repeat_share": self._some(0.4, 0.05, 0.5),
            "archive": rng.choice(("", "", "whole", "part", "silent")),
            "archive_s_max": rng.choice((0.05, 1.0)),
            "hold_events_max": rng.choice((4, 200)),
            "opening_puts": rng.choice((0, 0, 4)),
            "puts_max": rng.choice((0, 0, 0, 6)),
            "unsent_share": self._some(0.25, 0.02, 0.2),
        }

    def deaths(self) -> dict[str, Any]:
        """The fields about events that subscribers die of, which were added after gaps."""
        limit, every = self._rng.choice((0, 1, 3, 5)), self._rng.choice((0, 0, 0, 0, 0, 0, 7, 20))
        return {"crash_attempts_max": limit, "lethal_every": every if limit else 0}

    def schedules(self) -> dict[str, Any]:
        """The fields about scheduled events, which were added after those."""
        return {
            "schedule_share": self._some(0.2, 0.2, 1.0),
            "schedule_s_max": self._rng.choice((0.2, 2.0)),
            "cancel_rate": self._some(0.5, 0.5, 3.0),
        }

    def queues(self) -> dict[str, Any]:
        """The fields about programs that share a queue, and about searches, which were added last."""
        rng = self._rng
        count, order = rng.randint(1, 4), rng.choice(("", "", "source"))
        return {
            "members": count if rng.random() < 0.25 else 0,
            "queue_order": order,
            "search_step": rng.choice((0, 0, 1, 20)),
        }


QUEUE_FIELDS: Final = tuple(PlanDraw(0).queues())
"""Set these to their defaults to replay the plan of a seed from before programs shared queues…"""
SCHEDULE_FIELDS: Final = (*PlanDraw(0).schedules(), *QUEUE_FIELDS)
"""…these to replay the plan of one from before events were scheduled…"""
DEATH_FIELDS: Final = (*PlanDraw(0).deaths(), *SCHEDULE_FIELDS)
"""…these to replay the plan of one from before processes died of events…"""
GAP_FIELDS: Final = (*PlanDraw(0).gaps(), *DEATH_FIELDS)
"""…these to replay the plan of one from before gaps were simulated…"""
NEWEST_FIELDS: Final = (*PlanDraw(0).newest_fields(), *GAP_FIELDS)
"""…and these to replay the plan of an older seed."""
