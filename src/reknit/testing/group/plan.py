"""What happens in a simulated group: all faults in one place."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from reknit.protocol.multicast.settings import GroupSettings, SlowMember


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """All faults. The defaults are a quiet group of three."""

    seed: int
    members: int = 3
    start_s: float = 2.0
    """How long members only find each other and send, before the faults."""
    seconds: float = 4.0
    loss: float = 0.0
    repeat: float = 0.0
    delay_s: float = 0.0005
    jitter_s: float = 0.0
    late: float = 0.0
    """How many of the datagrams come so late that views may have changed meanwhile, by up to `late_s` more."""
    late_s: float = 1.0
    sends_per_s: float = 300.0
    events_max: int = 20
    payload_max: int = 300
    slow_hand_s: float = 0.0
    joins: int = 0
    leaves: int = 0
    aftershocks: int = 0
    """How many leave just after another one, while the survivors exchange its events."""
    aftershock_s: float = 0.2
    crashes: int = 0
    partitions: int = 0
    partition_s: float = 6.0
    stucks: int = 0
    """How often a program reads nothing for a while."""
    stuck_s: float = 2.5
    hostile_per_s: float = 0.0
    """How many mutated datagrams a stranger sends to members."""
    is_multicast_reachable: bool = True
    slow_member: str = "block"
    capacity_events: int = 200
    window_bytes: int = 40_000
    batch_bytes_max: int = 4_000
    suspect_s: float = 4.0

    @property
    def settings(self) -> GroupSettings:
        """Those of every member."""
        return GroupSettings(
            capacity_events=self.capacity_events,
            window_bytes=self.window_bytes,
            batch_bytes_max=self.batch_bytes_max,
            piece_bytes=700,
            suspect_s=self.suspect_s,
            slow_s=1.0,
            slow_member=SlowMember(self.slow_member),
        )

    def delays_s(self, rng: Random) -> list[float]:
        """The delays of a datagram's copies. The order of the draws is part of every seed."""
        return [
            self._delay_s(rng) for _ in range(1 + (rng.random() < self.repeat)) if rng.random() >= self.loss
        ]

    def _delay_s(self, rng: Random) -> float:
        delay_s = self.delay_s + rng.random() * self.jitter_s
        if self.late and rng.random() < self.late:
            delay_s += rng.random() * self.late_s
        return delay_s

    @staticmethod
    def from_seed(seed: int) -> GroupPlan:
        """A short plan with small windows, so that few datagrams fill them."""
        rng = Random(seed ^ 0x5A5A)
        return GroupPlan(
            seed,
            members=rng.choice([2, 3, 3, 4]),
            start_s=1.0,
            seconds=rng.choice([0.3, 0.6, 1.2]),
            loss=rng.choice([0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3]),
            repeat=rng.choice([0.0, 0.0, 0.1, 0.3]),
            delay_s=rng.choice([0.0005, 0.01]),
            jitter_s=rng.choice([0.0, 0.0005, 0.005, 0.05]),
            late=rng.choice([0.0, 0.0, 0.1, 0.3]),
            sends_per_s=rng.choice([5.0, 20.0, 50.0]),
            events_max=10,
            slow_hand_s=rng.choice([0.0, 0.0, 0.01]),
            joins=rng.choice([0, 0, 1, 2]),
            leaves=rng.choice([0, 0, 1]),
            aftershocks=rng.choice([0, 0, 1]),
            crashes=rng.choice([0, 0, 1]),
            partitions=rng.choice([0, 0, 0, 0, 1]),
            partition_s=4.0,
            stucks=rng.choice([0, 0, 0, 1]),
            hostile_per_s=rng.choice([0.0, 0.0, 40.0]),
            is_multicast_reachable=rng.random() < 0.8,
            slow_member=rng.choice(list(SlowMember)).value,
            capacity_events=rng.choice([20, 60]),
            window_bytes=rng.choice([4_000, 10_000]),
            batch_bytes_max=2_000,
            suspect_s=2.0,
        )

    @staticmethod
    def long(seed: int) -> GroupPlan:
        """A plan with more events, larger windows and longer faults."""
        rng = Random(seed ^ 0xA5A5)
        return GroupPlan(
            seed,
            members=rng.randint(2, 4),
            seconds=rng.choice([1.0, 2.0, 4.0]),
            loss=rng.choice([0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3]),
            repeat=rng.choice([0.0, 0.0, 0.1, 0.3]),
            delay_s=rng.choice([0.0005, 0.01]),
            jitter_s=rng.choice([0.0, 0.0005, 0.005, 0.05]),
            sends_per_s=rng.choice([10.0, 100.0, 300.0]),
            slow_hand_s=rng.choice([0.0, 0.0, 0.01]),
            joins=rng.choice([0, 0, 1, 2]),
            leaves=rng.choice([0, 0, 1]),
            crashes=rng.choice([0, 0, 1, 2]),
            partitions=rng.choice([0, 0, 0, 1]),
            stucks=rng.choice([0, 0, 1, 2]),
            is_multicast_reachable=rng.random() < 0.8,
            slow_member=rng.choice(list(SlowMember)).value,
            late=rng.choice([0.0, 0.0, 0.1, 0.3]),
            aftershocks=rng.choice([0, 0, 1]),
        )
