"""The plan of a campaign: which faults happen when, and to whom. It follows from the seed and the layout alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

SUSPENSION_S_MAX = 30.0
AWAY_MAX = 2
"""How many nodes may be faulty at a time, so that there is a fabric left."""


class Kind(StrEnum):
    """A kind of fault."""

    KILL = "kill -9"
    SUSPEND = "suspend"
    RESTART = "restart with changed settings"
    DAMAGE = "damage an old segment"
    CLOCK = "step the clock"
    SYNC = "fail syncs"
    FULL = "fill the disk"
    CUT = "cut the link"
    SILENCE = "silence the link"
    SLOW = "slow the link"
    DOWN = "take the network down"
    THROTTLE = "throttle the network"


NODE = {
    Kind.KILL: 20, Kind.SUSPEND: 10, Kind.RESTART: 8, Kind.DAMAGE: 4, Kind.CLOCK: 6, Kind.SYNC: 6, Kind.FULL: 6
}  # fmt: skip
LINK = {Kind.CUT: 14, Kind.SILENCE: 8, Kind.SLOW: 8}
NETWORK = {Kind.DOWN: 2, Kind.THROTTLE: 3}
CLIENT = {Kind.KILL: 12, Kind.SUSPEND: 5}
PIPELINE = {Kind.KILL: 3}

LASTS_S_MAX = {
    Kind.KILL: 8.0,
    Kind.SUSPEND: SUSPENSION_S_MAX,
    Kind.RESTART: 1.0,
    Kind.DAMAGE: 1.0,
    Kind.CLOCK: 30.0,
    Kind.SYNC: 8.0,
    Kind.FULL: 12.0,
    Kind.CUT: 12.0,
    Kind.SILENCE: 20.0,
    Kind.SLOW: 30.0,
    Kind.DOWN: 6.0,
    Kind.THROTTLE: 30.0,
}
CLOCK_STEPS_S = (-86_400, -3_600, -90, -5, 5, 90, 3_600, 86_400, 40 * 86_400)
CHANGES: dict[str, Sequence[str]] = {
    "journal.segment_bytes": ("256 KiB", "512 KiB", "2 MiB"),
    "journal.tail_cache_bytes": ("0", "64 KiB", "8 MiB"),
    "journal.index_interval_s": ("0.3", "2", "10"),
    "journal.index_bytes": ("64 KiB", "8 MiB"),
    "limits.batch_bytes": ("4 KiB", "64 KiB", "256 KiB"),
    "limits.subscribe_credit_bytes": ("64 KiB", "1 MiB", "8 MiB"),
    "limits.in_flight_bytes_max": ("128 KiB", "4 MiB", "64 MiB"),
    "links.window_bytes": ("32 KiB", "1 MiB", "16 MiB"),
    "links.beat_s": ("0.5", "1.0"),
    "transport.heartbeat_s": ("1", "5"),
    "transport.reconnect_backoff_s_max": ("0.5", "2", "10"),
    "dispatch.lease_s": ("0", "5"),
    "recovery.ask_timeout_s": ("0.5", "1"),
    "http.scheme": ("kn_event_hash", "kn_route_checkpoint"),
    "http.heartbeat_s": ("1", "5"),
}
"""The settings that a restart may change, and their values."""


@dataclass(frozen=True)
class Fault:
    """A fault that begins at `at_s` and is over after `lasts_s`."""

    number: int
    at_s: float
    lasts_s: float
    kind: Kind
    target: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        lasts = f" for {self.lasts_s:.1f} s" if self.kind not in (Kind.RESTART, Kind.DAMAGE) else ""
        return f"{self.at_s:6.1f} s  {self.target}: {self.kind}{lasts}{detail}"


@dataclass(frozen=True)
class Targets:
    """What faults can happen to, by name."""

    nodes: tuple[str, ...]
    links: tuple[str, ...]
    clients: tuple[str, ...]
    pipelines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All faults, in the order of their beginnings."""

    seed: int
    seconds: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: {len(self.faults)} faults in {self.seconds:.0f} s"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def make_plan(seed: int, seconds: float, targets: Targets, *, every_s: float = 5.0) -> Plan:
    """The plan of a seed.

    >>> targets = Targets(("n1", "n2"), ("n1-n2",), ("p1",))
    >>> make_plan(7, 60, targets) == make_plan(7, 60, targets)
    True
    >>> make_plan(7, 60, targets) == make_plan(8, 60, targets)
    False
    """
    return _Planner(seed, seconds, targets, every_s).plan()


class _Planner:
    def __init__(self, seed: int, seconds: float, targets: Targets, every_s: float) -> None:
        self._seed, self._seconds, self._targets, self._every_s = seed, seconds, targets, every_s
        self._rng = Random(seed)
        self._faults: list[Fault] = []
        self._choices: list[tuple[str, Kind, float]] = []
        self._add(targets.nodes, NODE)
        self._add(targets.links, LINK)
        self._add(("network",), NETWORK)
        self._add(targets.clients, CLIENT)
        self._add(targets.pipelines, PIPELINE)

    def _add(self, names: Sequence[str], kinds: dict[Kind, int]) -> None:
        self._choices += [
            (name, kind, weight / len(names)) for name in names for kind, weight in kinds.items()
        ]

    def plan(self) -> Plan:
        at_s, stop_s = 0.05 * self._seconds, 0.95 * self._seconds
        while (at_s := at_s + self._rng.expovariate(1 / self._every_s)) < stop_s:
            self._put(at_s, stop_s - at_s)
        return Plan(self._seed, self._seconds, tuple(self._faults))

    def _put(self, at_s: float, room_s: float) -> None:
        """Add one fault, unless its target is faulty already or too many nodes are."""
        weights = [weight for _, _, weight in self._choices]
        [(target, kind, _)] = self._rng.choices(self._choices, weights)
        longest = min(LASTS_S_MAX[kind], self._seconds / 6, room_s)
        lasts_s = round(self._rng.uniform(0.1, 1.0) ** 2 * longest, 1)
        detail = self._detail(kind)
        active = {fault.target for fault in self._faults if fault.at_s + fault.lasts_s + 2.0 > at_s}
        away = active.intersection(self._targets.nodes)
        if target not in active and not (target in self._targets.nodes and len(away) >= AWAY_MAX):
            number = len(self._faults) + 1
            self._faults.append(Fault(number, round(at_s, 1), lasts_s, kind, target, detail))

    def _detail(self, kind: Kind) -> str:
        rng = self._rng
        match kind:
            case Kind.CLOCK:
                return f"{rng.choice(CLOCK_STEPS_S)} s"
            case Kind.DAMAGE:
                return f"place {rng.random():.4f}"
            case Kind.SLOW:
                return f"{rng.choice((20, 100, 400))} ms"
            case Kind.THROTTLE:
                return f"{rng.choice((2, 8, 30))} mbit"
            case Kind.RESTART:
                names = rng.sample(sorted(CHANGES), 3)
                return ", ".join(f"{name}={rng.choice(CHANGES[name])}" for name in names)
            case _:
                return ""
