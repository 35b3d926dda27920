"""The subjects, by name. A subject's libraries are imported when it runs, not when it is listed."""

from __future__ import annotations

from importlib import import_module

from bench.peers.base import Peer

SUBJECTS: dict[str, tuple[str, str]] = {
    "reknit": ("bench.peers.reknit", "Reknit"),
    "pyzmq-pubsub": ("bench.peers.pyzmq", "PubSub"),
    "pyzmq-pushpull": ("bench.peers.pyzmq", "PushPull"),
    "zenoh": ("bench.peers.zenoh", "Zenoh"),
    "zenoh-advanced": ("bench.peers.zenoh", "ZenohAdvanced"),
    "nats": ("bench.peers.nats", "Nats"),
    "jetstream": ("bench.peers.jetstream", "JetStream"),
    "redis": ("bench.peers.redis", "RedisEverysec"),
    "redis-always": ("bench.peers.redis", "RedisAlways"),
}


def load_peer(name: str) -> Peer:
    """The subject of this name; ImportError where its library is not installed."""
    module, attribute = SUBJECTS[name]
    peer = getattr(import_module(module), attribute)()
    assert isinstance(peer, Peer), name
    return peer
