"""Zenoh through its own Python binding: peer to peer, plain, and advanced (numbered, cached, recovering)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import zenoh

from bench.job import Job, Load
from bench.peers.base import Peer, Publisher, Sink, pack_by_hand

CACHE_SAMPLES = 1_000
HEARTBEAT_S = 0.5
# Taking samples from a channel measured faster here than a callback for each, by about a quarter.
CHANNEL_SAMPLES = 10_000


def open_session(listen: list[int], connect: list[int], timestamping: bool) -> zenoh.Session:
    config = zenoh.Config()
    settings: dict[str, object] = {
        "mode": "peer",
        "listen/endpoints": [f"tcp/127.0.0.1:{port}" for port in listen],
        "connect/endpoints": [f"tcp/127.0.0.1:{port}" for port in connect],
        "connect/timeout_ms": -1,
        "connect/retry": {"period_init_ms": 20, "period_max_ms": 50, "period_increase_factor": 1},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "timestamping/enabled": timestamping,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


class ZenohPublisher:
    def __init__(self, session: zenoh.Session, publisher: Any) -> None:
        self._session = session
        self._publisher = publisher  # the session's alone would be dropped with its last reference
        self.send: Callable[[bytes], object] = publisher.put

    def send_batch(self, payloads: list[bytes]) -> None:
        self._publisher.put(pack_by_hand(payloads))

    def flush(self) -> None:
        """Zenoh sends on its own."""

    def close(self) -> None:
        self._session.close()  # type: ignore[no-untyped-call]


class Zenoh(Peer):
    name = "zenoh"
    keeps = "nothing"
    packages = ("eclipse-zenoh",)
    holds_in_publisher = True
    timestamping: ClassVar[bool] = False

    def refuses(self, load: Load) -> str | None:
        if load.stalled:
            return "no queue for a stalled subscriber: blocks the publisher, then closes the connection"
        return None

    def publisher(self, job: Job) -> Publisher:
        session = open_session([job.lane_ports[job.lane]], [], self.timestamping)
        return ZenohPublisher(session, self.declare_publisher(session, f"bench/{job.lane}"))

    def declare_publisher(self, session: zenoh.Session, key: str) -> Any:
        return session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)

    def subscribe(self, job: Job, sink: Sink) -> None:
        session = open_session([], list(job.lane_ports), self.timestamping)
        take = sink.message if sink.is_batch else sink.one
        with self.declare_subscriber(session, "bench/*") as samples:
            sink.ready()
            for sample in samples:
                if take(sample.payload.to_bytes()):
                    break
        session.close()  # type: ignore[no-untyped-call]

    def declare_subscriber(self, session: zenoh.Session, key: str) -> Any:
        return session.declare_subscriber(key, zenoh.handlers.FifoChannel(CHANNEL_SAMPLES))


class ZenohAdvanced(Zenoh):
    name = "zenoh-advanced"
    keeps = "the last 1,000 in the publisher's memory"
    timestamping = True  # its cache is ordered by time

    def declare_publisher(self, session: zenoh.Session, key: str) -> Any:
        return zenoh.ext.declare_advanced_publisher(
            session,
            key,
            congestion_control=zenoh.CongestionControl.BLOCK,
            cache=zenoh.ext.CacheConfig(CACHE_SAMPLES),
            sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=HEARTBEAT_S),  # type: ignore[call-arg]
            publisher_detection=True,
        )

    def declare_subscriber(self, session: zenoh.Session, key: str) -> Any:
        return zenoh.ext.declare_advanced_subscriber(
            session,
            key,
            zenoh.handlers.FifoChannel(CHANNEL_SAMPLES),
            recovery=zenoh.ext.RecoveryConfig(heartbeat=True),  # type: ignore[call-arg]
        )
