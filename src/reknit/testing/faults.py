"""Everything that can go wrong in a simulation, and how often: one frozen plan, made from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Every knob there is. A rate is per second of the run; a share is a probability.

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
    """Publishers with a name, whose source goes on when the program starts again."""
    durables: int = 2
    ephemerals: int = 1
    run_s: float = 6.0
    """How long faults happen and programs publish; afterwards everything is to come to rest."""

    # what programs do
    put_rate: float = 8.0
    burst_max: int = 6
    payload_bytes_max: int = 120
    think_s_max: float = 0.1
    """How long an application takes over a batch."""
    credit_bytes: int = 4096
    recover_share: float = 1.0
    """Ephemeral subscribers that search for what they miss, as a session's do."""
    accept: float = 1.0
    release: float = 0.0
    fail: float = 0.0
    reject: float = 0.0
    """Weights of an application's outcomes."""
    attempts_max: int = 0
    hang: float = 0.0
    """Batches that an application takes and says nothing about, where there are leases."""

    # dispatching
    lease_s: float = 0.0
    ttl_ms: int = 0
    """What publishers give their events; 0 is for ever."""
    is_ordered: bool = False
    """Whether events of one topic wait for those before them."""
    pause_rate: float = 0.0
    pause_s_max: float = 1.0

    # the network
    delay_s_min: float = 0.001
    delay_s_max: float = 0.02
    split_share: float = 0.0
    """Bytes that arrive in two pieces."""
    cut_rate: float = 0.0
    """Connections that break, with what is in flight."""
    partition_rate: float = 0.0
    partition_s_max: float = 2.0
    one_way_share: float = 0.3
    """Partitions that stop one direction only."""
    notice_s_max: float = 1.0
    """How long a side takes to find out that its connection is gone."""
    buffer_bytes: int = 1 << 16
    """What a connection takes before its sender is told to wait."""
    reconnect_s_max: float = 0.3
    loss_share: float = 0.0
    duplicate_share: float = 0.0
    reorder_share: float = 0.0
    """Datagrams that get lost, arrive twice, or arrive late."""

    # crashes
    node_crash_rate: float = 0.0
    node_down_s_max: float = 1.0
    publisher_crash_rate: float = 0.0
    subscriber_crash_rate: float = 0.0
    leave_share: float = 0.0
    """Subscribers that take their leave instead of crashing; some are to be forgotten."""
    program_down_s_max: float = 1.0
    unsynced_survives_share: float = 0.5
    """Crashes of a node in which a commit that was under way did reach the disk."""

    # the journal
    commit_s_max: float = 0.01
    commit_failure_share: float = 0.0
    staged_bytes_max: int = 1 << 20
    segment_bytes: int = 4096
    memory_topics: bool = False
    """Whether one topic is kept without sync. Nodes are killed then, and do not lose power: what was written stays."""
    retain_events: int = 0
    """Events that retention keeps; 0 is all."""
    retain_owed: bool = True
    """Whether retention spares what a durable subscriber is still owed."""
    trim_s: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> FaultPlan:
        """A plan in which each kind of fault is there or not: few at a time find more than all at once."""
        rng = Random(f"plan {seed}")

        def some(share: float, low: float, high: float) -> float:
            amount = rng.uniform(low, high)
            return amount if rng.random() < share else 0.0

        return cls(
            seed=seed,
            nodes=rng.choice((1, 1, 1, 2)),
            publishers=rng.randint(1, 3),
            lasting_share=rng.choice((0.0, 0.5, 1.0)),
            durables=rng.randint(0, 3),
            ephemerals=rng.randint(0, 2),
            run_s=rng.uniform(2.0, 8.0),
            put_rate=rng.uniform(2.0, 15.0),
            burst_max=rng.choice((1, 4, 12)),
            payload_bytes_max=rng.choice((8, 100, 600)),
            think_s_max=rng.choice((0.0, 0.02, 0.3)),
            credit_bytes=rng.choice((300, 2048, 1 << 20)),
            release=some(0.4, 0.0, 0.4),
            fail=some(0.4, 0.0, 0.4),
            reject=some(0.4, 0.0, 0.2),
            attempts_max=rng.choice((0, 0, 2, 4)),
            delay_s_max=rng.choice((0.002, 0.02, 0.2)),
            split_share=some(0.4, 0.0, 0.4),
            cut_rate=some(0.6, 0.1, 2.0),
            partition_rate=some(0.4, 0.1, 0.7),
            partition_s_max=rng.uniform(0.2, 3.0),
            notice_s_max=rng.choice((0.01, 0.5, 2.0)),
            buffer_bytes=rng.choice((600, 1 << 16)),
            node_crash_rate=some(0.5, 0.1, 0.8),
            publisher_crash_rate=some(0.4, 0.1, 0.6),
            subscriber_crash_rate=some(0.4, 0.1, 0.8),
            commit_s_max=rng.choice((0.0, 0.01, 0.3)),
            commit_failure_share=some(0.2, 0.05, 0.5),
            staged_bytes_max=rng.choice((1024, 1 << 20, 1 << 20)),
            segment_bytes=rng.choice((512, 4096)),
            retain_events=rng.choice((0, 0, 20, 100)),
            retain_owed=rng.random() < 0.6,
            # New knobs are drawn last, so that old seeds stay what they were.
            recover_share=rng.choice((0.0, 1.0)),
            leave_share=some(0.5, 0.2, 0.8),
            memory_topics=rng.random() < 0.3,
            lease_s=some(0.25, 0.2, 1.0),
            hang=rng.choice((0.0, 0.1, 0.4)),
            ttl_ms=int(some(0.25, 100, 3000)),
            is_ordered=rng.random() < 0.3,
            pause_rate=some(0.3, 0.2, 1.5),
            pause_s_max=rng.uniform(0.1, 2.0),
        )
