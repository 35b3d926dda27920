"""Every fault of a simulated fabric, and how often it happens: one frozen plan, drawn from a seed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Literal

from reknit.queue_order import QueueOrder
from reknit.testing.fabric.plans.draws import PlanDraw
from reknit.testing.fabric.plans.families import family_fields
from reknit.testing.fabric.plans.sizes import small_fields

Shape = Literal["mesh", "chain", "ring", "star"]
Order = Literal["none", "source", "key"]
Feed = Literal["relay", "push", "pull", "align"]
GroupNetwork = Literal["multicast", "seeds", "tcp"]
SlowMember = Literal["block", "evict", "dead_letter"]
Overflow = Literal["withhold", "refuse_newest", "drop_oldest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPlan:
    """Every parameter of a simulated fabric. A rate is per second of the run; a share is a probability.

    It has more than 15 fields because all faults are in one place: a replay prints the whole plan as one value, and
    a test sets a single field.

    >>> FabricPlan.from_seed(7) == FabricPlan.from_seed(7)
    True
    """

    seed: int

    # the fabric
    nodes: int = 1
    shape: Shape = "mesh"
    heal_s: float = 60.0
    """How far nodes look back for events when routes change."""
    cost_max: int = 1
    """Links have a random cost up to this one."""
    memory_share: float = 0.0
    """Nodes with their journal in memory. They are never restarted."""
    segment_bytes: int = 1 << 16
    run_s: float = 5.0
    """How long faults happen and programs publish. Afterwards everything must come to rest."""

    # programs
    publishers: int = 2
    lasting_share: float = 0.5
    """Publishers with a name, which keep their source when the program restarts."""
    put_rate: float = 5.0
    burst_max: int = 5
    payload_bytes_max: int = 200
    durables: int = 2
    ephemerals: int = 1
    senders: int = 0
    """Publishers on balanced topics, which ask for the outcome of each event."""
    workers: int = 0
    resend_share: float = 0.5
    """Senders whose released events go to the next worker first."""
    requesters: int = 0
    services: int = 0
    think_s_max: float = 0.05
    release: float = 0.0
    fail: float = 0.0
    reject: float = 0.0
    """The weights of an application's dispositions, beside 1 for accepting."""
    leave_share: float = 0.0
    """Restarts of an AMQP receiver in which it leaves in order."""
    quit_share: float = 0.0
    """Deliveries at which a subscriber or worker leaves in order, without settling the event, and comes back later."""

    # the network
    delay_s_max: float = 0.005
    split_share: float = 0.0
    socket_bytes: int = 1 << 16
    reset_rate: float = 0.0
    cut_rate: float = 0.0
    cut_s_max: float = 3.0
    one_way_share: float = 0.3
    slow_rate: float = 0.0
    slow_s_max: float = 1.0

    # hosts
    crash_rate: float = 0.0
    power_share: float = 0.5
    """Crashes of a node's host in which the power fails, so that writes that were not synced may be lost."""
    stop_share: float = 0.2
    """Restarts of a node that are in order."""
    down_s_max: float = 2.0
    outage_rate: float = 0.0
    """Times at which all nodes crash at once. They come back one after another."""
    replace_rate: float = 0.0
    """Nodes that come back with an older copy of their disk, made on the way, or with an empty one."""
    empty_share: float = 0.5
    freeze_rate: float = 0.0
    freeze_s_max: float = 4.0
    program_crash_rate: float = 0.0
    program_down_s_max: float = 1.0
    step_rate: float = 0.0
    step_s_max: float = 3600.0
    """Steps of a host's clock."""
    drift_max: float = 0.0
    """By which share the clocks of hosts go too fast or too slow at most."""

    # disks
    sync_failure_rate: float = 0.0
    """Syncs fail for a moment; a node stops its intake then until it is restarted, which follows."""
    stall_s_max: float = 0.0
    full_rate: float = 0.0
    full_s_max: float = 1.0

    # administration
    pause_rate: float = 0.0
    pause_s_max: float = 1.0
    redrive_rate: float = 0.0
    drop_rate: float = 0.0
    link_rate: float = 0.0
    """Links that are removed or added while the nodes run."""
    look_rate: float = 0.0
    """Looks of an observer at a node: its status, its ledger, its metrics, and all that it has stored."""
    away_s_max: float = 2.0
    """How long a link that was removed is away at most."""

    # rules
    order: Order = "none"
    """On `plant/**`."""
    attempts_max: int = 0
    lease_s: float = 0.0
    hang: float = 0.0
    """The weight of events that a durable subscriber never settles, until its lease ends."""
    queue_members: int = 0
    """Programs that share one queue."""
    queue_order: QueueOrder = ""
    """What these say that their queue keeps in order."""
    ttl_ms: int = 0
    """Of events on `car/*`."""
    queue_events_max: int = 0
    overflow: Overflow = "withhold"
    """What happens on `plant/a` then."""
    retain_events_max: int = 0
    retain_bytes_max: int = 0
    retain_s_max: float = 0.0
    protects_unsettled: bool = True

    # replicas
    feeds: tuple[Feed, ...] = ()
    """How each node beside the fabric gets the events on `plant/**`: the first from the fabric, the next from it."""
    is_ring: bool = False
    """Whether the last of them bridges its events back to the fabric."""

    # streams
    stream_writers: int = 0
    stream_readers: int = 0
    give_up_share: float = 0.0
    """Streams that their writer aborts at the end."""

    # gateways
    posters: int = 0
    """Programs that publish by HTTP."""
    tunnels: int = 0
    """Programs that read with the tunnel client."""
    web_readers: int = 0
    """Programs that read by Server-Sent Events or WebSocket."""
    visitors: int = 0
    """Programs that use every page of the HTTP gateway."""
    checkpoint_share: float = 1.0
    """Nodes whose tunnels resume by checkpoints, not by hashes."""
    amqp_senders: int = 0
    amqp_receivers: int = 0
    amqp_visitors: int = 0
    """Programs that use what AMQP has besides plain messages."""
    hostiles: int = 0
    """Peers that send garbage, mutated messages and floods."""

    callers: int = 0
    """Programs that use the calls of the client that others do not use."""
    blocking: int = 0
    """Publishers, subscribers, services and requesters that use the blocking client, in threads."""

    # caches
    liars: int = 0
    """Caches that hang, deny, or answer something else."""
    recoverers: int = 0
    """Subscribers without a name that ask them, and honest nodes, for history and for what they miss."""

    # groups
    members: int = 0
    """Programs that are members of one group, each with a session."""
    group_network: GroupNetwork = "multicast"
    """How they reach each other: by multicast, by datagrams to each, or by TCP."""
    group_capacity: int = 1000
    """How many of a member's events may be unacknowledged."""
    group_slow: SlowMember = "block"
    """What happens to a member that takes nothing while others wait for it."""
    member_leave_share: float = 0.0
    """Turns of a member in which it leaves in order, and joins again later."""
    datagram_loss_share: float = 0.0
    datagram_copy_share: float = 0.0
    """Datagrams that arrive twice."""
    datagram_full_share: float = 0.0
    """Datagrams that the sender's socket has no room for at once."""
    group_keys: int = 0
    """How many keys the members share one after another, each replaced while they run; 0: they have none."""

    # identities
    tenants: int = 0
    """Programs with an identity of their own, which use as much of their node as their quotas allow, and try more."""
    quota_events_per_s: int = 2
    quota_connections: int = 3
    quota_names: int = 2
    """What each of them may have: events a second, connections, and durable subscribers."""

    # damage
    flip_share: float = 0.0
    """Restarts of a node after which one byte of an old part of its log is another one: what was there is lost."""

    # searches
    search_step: int = 0
    """How much nodes look for starts of subscriptions, and for what they hold, in one step; 0: as much as usual."""

    @classmethod
    def from_seed(cls, seed: int) -> FabricPlan:
        """The plan of a seed: drawn field by field and made small, or with the fields of its family."""
        drawn = cls.drawn(seed)
        return replace(drawn, **(family_fields(seed) or small_fields(seed, asdict(drawn))))

    @classmethod
    def large(cls, seed: int) -> FabricPlan:
        """The same plan with all kinds of programs at once, and more events."""
        return replace(cls.drawn(seed), **family_fields(seed))

    @classmethod
    def drawn(cls, seed: int) -> FabricPlan:
        """A plan without a family. Each fault is absent from some seeds, so that the others can be seen alone."""
        draw, administration = (
            PlanDraw(Random(f"fabric plan {seed}")),
            PlanDraw(Random(f"administration {seed}")),
        )
        return cls(
            seed=seed,
            **draw.fabric(),
            **draw.programs(),
            **draw.network(),
            **draw.hosts(),
            **administration.requests(),
            **administration.rules(),
            **PlanDraw(Random(f"replicas {seed}")).replicas(),
            **PlanDraw(Random(f"streams {seed}")).streams(),
            **PlanDraw(Random(f"gateway plan {seed}")).gateways(),
            **PlanDraw(Random(f"groups {seed}")).groups(),
            **PlanDraw(Random(f"replacements {seed}")).replacements(),
            **PlanDraw(Random(f"departures {seed}")).departures(),
            **PlanDraw(Random(f"caches {seed}")).caches(),
            **PlanDraw(Random(f"blocking {seed}")).blocking(),
            **PlanDraw(Random(f"group keys {seed}")).group_keys(),
            **PlanDraw(Random(f"searches {seed}")).searches(),
        )
