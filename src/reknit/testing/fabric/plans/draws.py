"""Draws the fields of plans for whole fabrics."""

from __future__ import annotations

from random import Random
from typing import Any


class PlanDraw:
    """Draws a plan's fields, in an order that never changes: new fields go to the end."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def _some(self, share: float, low: float, high: float) -> float:
        """A value in a share of the plans, otherwise 0."""
        chosen, value = self._rng.random() < share, self._rng.uniform(low, high)
        return value if chosen else 0.0

    def fabric(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "nodes": rng.choice((1, 1, 2, 2, 3, 3, 3, 4, 5, 6, 9)),
            "shape": rng.choice(("mesh", "chain", "ring", "star")),
            "cost_max": rng.choice((1, 1, 10)),
            "memory_share": self._some(0.2, 0.2, 1.0),
            "segment_bytes": rng.choice((4096, 1 << 14, 1 << 20)),
            "run_s": rng.uniform(2.0, 6.0),
        }

    def programs(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "publishers": rng.randint(1, 3),
            "lasting_share": rng.choice((0.0, 0.5, 1.0)),
            "put_rate": rng.uniform(2.0, 10.0),
            "burst_max": rng.choice((1, 5, 20)),
            "payload_bytes_max": rng.choice((20, 200, 2000)),
            "durables": rng.randint(0, 3),
            "ephemerals": rng.randint(0, 2),
            "senders": rng.choice((0, 1, 1, 2)),
            "workers": rng.randint(1, 4),
            "resend_share": rng.choice((0.0, 1.0)),
            "requesters": rng.choice((0, 0, 1, 2)),
            "services": rng.choice((0, 1, 1)),
            "think_s_max": rng.choice((0.0, 0.05, 0.3)),
            "release": self._some(0.5, 0.1, 1.0),
            "fail": self._some(0.3, 0.1, 0.5),
            "reject": self._some(0.3, 0.05, 0.3),
            "leave_share": self._some(0.5, 0.2, 0.8),
        }

    def network(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "delay_s_max": rng.choice((0.001, 0.005, 0.05)),
            "split_share": self._some(0.5, 0.05, 0.5),
            "socket_bytes": rng.choice((1 << 12, 1 << 16, 1 << 16)),
            "reset_rate": self._some(0.5, 0.1, 1.0),
            "cut_rate": self._some(0.5, 0.1, 0.8),
            "cut_s_max": rng.choice((0.5, 3.0, 8.0)),
            "one_way_share": rng.choice((0.0, 0.3, 1.0)),
            "slow_rate": self._some(0.3, 0.1, 0.5),
            "slow_s_max": rng.uniform(0.05, 1.0),
        }

    def hosts(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "crash_rate": self._some(0.5, 0.05, 0.4),
            "power_share": rng.choice((0.0, 0.5, 1.0)),
            "stop_share": rng.choice((0.0, 0.2, 0.5)),
            "down_s_max": rng.choice((0.2, 2.0, 6.0)),
            "freeze_rate": self._some(0.3, 0.05, 0.3),
            "freeze_s_max": rng.choice((1.0, 4.0, 20.0)),
            "program_crash_rate": self._some(0.5, 0.1, 0.6),
            "program_down_s_max": rng.choice((0.2, 2.0)),
            "step_rate": self._some(0.2, 0.1, 0.5),
            "step_s_max": rng.choice((1.0, 3600.0)),
            "sync_failure_rate": self._some(0.2, 0.1, 0.4),
            "stall_s_max": self._some(0.3, 0.005, 0.5),
            "full_rate": self._some(0.2, 0.1, 0.4),
            "full_s_max": rng.uniform(0.1, 2.0),
            "pause_rate": self._some(0.2, 0.1, 0.5),
            "pause_s_max": rng.uniform(0.1, 2.0),
        }

    def requests(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "redrive_rate": self._some(0.3, 0.2, 1.0),
            "drop_rate": self._some(0.2, 0.1, 0.5),
            "link_rate": self._some(0.2, 0.1, 0.6),
            "away_s_max": rng.uniform(0.1, 3.0),
        }

    def rules(self) -> dict[str, Any]:
        rng = self._rng
        lease_s = self._some(0.2, 0.3, 2.0)
        has_retention = rng.random() < 0.3
        return {
            "order": rng.choice(("none", "none", "source", "key")),
            "attempts_max": rng.choice((0, 0, 2, 5)),
            "lease_s": lease_s,
            "hang": rng.uniform(0.05, 0.3) if lease_s else 0.0,
            "ttl_ms": rng.choice((0, 0, 500, 3000)),
            "queue_events_max": rng.choice((0, 0, 0, 10, 100)),
            "overflow": rng.choice(("withhold", "refuse_newest", "drop_oldest")),
            "retain_events_max": rng.choice((0, 1, 50)) if has_retention else 0,
            "retain_bytes_max": rng.choice((0, 1, 20_000)) if has_retention else 0,
            "retain_s_max": rng.choice((0.0, 1.0)) if has_retention else 0.0,
            "protects_unsettled": rng.random() < 0.7,
        }

    def replicas(self) -> dict[str, Any]:
        rng = self._rng
        count = rng.choice((0, 0, 0, 0, 0, 1, 1, 2))
        return {
            "feeds": tuple(rng.choice(("relay", "push", "pull", "align")) for _ in range(count)),
            "is_ring": rng.random() < 0.5,
        }

    def streams(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "stream_writers": rng.choice((0, 0, 0, 0, 1, 2)),
            "stream_readers": rng.randint(1, 3),
            "give_up_share": rng.choice((0.0, 0.3)),
        }

    def gateways(self) -> dict[str, Any]:
        rng = self._rng
        has_web, has_amqp = rng.random() < 0.35, rng.random() < 0.25
        return {
            "posters": rng.randint(1, 2) if has_web else 0,
            "tunnels": rng.randint(0, 2) if has_web else 0,
            "web_readers": rng.randint(0, 2) if has_web else 0,
            "checkpoint_share": rng.choice((0.0, 0.5, 1.0, 1.0)),
            "amqp_senders": rng.randint(1, 2) if has_amqp else 0,
            "amqp_receivers": rng.randint(1, 3) if has_amqp else 0,
            "hostiles": rng.choice((0, 0, 0, 0, 1, 2)),
        }

    def groups(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "members": rng.randint(2, 4) if rng.random() < 0.25 else 0,
            "group_network": rng.choice(("multicast", "multicast", "seeds", "tcp")),
            "group_capacity": rng.choice((10, 1000)),
            "group_slow": rng.choice(("block", "evict", "dead_letter")),
            "member_leave_share": self._some(0.5, 0.02, 0.2),
            "datagram_loss_share": self._some(0.6, 0.01, 0.3),
            "datagram_copy_share": self._some(0.3, 0.01, 0.2),
            "datagram_full_share": self._some(0.2, 0.01, 0.3),
        }

    def replacements(self) -> dict[str, Any]:
        return {
            "replace_rate": self._some(0.15, 0.1, 0.3),
            "empty_share": self._rng.choice((0.0, 0.5, 1.0)),
        }

    def departures(self) -> dict[str, Any]:
        return {"quit_share": self._some(0.25, 0.01, 0.1), "drift_max": self._some(0.2, 0.001, 0.2)}

    def blocking(self) -> dict[str, Any]:
        return {"blocking": 1 if self._rng.random() < 0.15 else 0, "look_rate": self._some(0.15, 0.5, 1.5)}

    def caches(self) -> dict[str, Any]:
        has_caches = self._rng.random() < 0.25
        return {
            "liars": self._rng.randint(0, 2) if has_caches else 0,
            "recoverers": self._rng.randint(1, 2) if has_caches else 0,
        }

    def searches(self) -> dict[str, Any]:
        return {"search_step": self._rng.choice((0, 1, 20))}

    def group_keys(self) -> dict[str, Any]:
        return {"group_keys": self._rng.choice((0, 0, 1, 3))}
