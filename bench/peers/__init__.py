"""The subjects, by name. A subject's libraries are imported when it runs, not when it is listed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import NamedTuple

from bench.peers.base import Peer


class Subject(NamedTuple):
    title: str
    module: str
    kind: str


SUBJECTS: dict[str, Subject] = {
    "reknit": Subject("reknit", "reknit", "Reknit"),
    "pyzmq-pubsub": Subject("pyzmq PUB/SUB", "pyzmq", "PubSub"),
    "pyzmq-pushpull": Subject("pyzmq PUSH/PULL", "pyzmq", "PushPull"),
    "zenoh": Subject("zenoh", "zenoh", "Zenoh"),
    "zenoh-advanced": Subject("zenoh advanced", "zenoh", "ZenohAdvanced"),
    "nats": Subject("NATS core", "nats", "Nats"),
    "jetstream": Subject("NATS JetStream", "jetstream", "JetStream"),
    "redis": Subject("Redis streams", "redis", "RedisEverysec"),
    "redis-always": Subject("Redis streams, synced", "redis", "RedisAlways"),
}
TITLES = {name: subject.title for name, subject in SUBJECTS.items()}


def load_peer(name: str) -> Peer:
    """The subject of this name. Raises `ImportError` if its library is not installed."""
    subject = SUBJECTS[name]
    peer = getattr(import_module(f"bench.peers.{subject.module}"), subject.kind)()
    assert isinstance(peer, Peer), name
    return peer


def find_peers(names: Iterable[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """The subjects that can run here, and the reasons why the others cannot."""
    found: dict[str, Peer] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            peer = load_peer(name)
        except ImportError as error:
            missing[name] = f"{error}; pip install 'reknit[bench]'"
            continue
        if why := peer.missing():
            missing[name] = why
        else:
            found[name] = peer
    return found, missing
