"""ZeroMQ through pyzmq: no broker, nothing stored. PUB/SUB to all, PUSH/PULL to one."""

from __future__ import annotations

from typing import ClassVar

import zmq

from bench.job import Job, Load
from bench.peers.base import Peer, Publisher, Sink, pack_by_hand

# ZeroMQ's own way not to lose events at speed: the sender waits at its high-water mark instead of dropping.
HIGH_WATER_MARK_EVENTS = 100_000
HIGH_WATER_MARK_BATCHES = 1_000


class ZmqPublisher:
    def __init__(self, job: Job, kind: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(kind)
        self._socket.set_hwm(high_water_mark(job))
        if kind == zmq.PUB:
            self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._socket.bind(f"tcp://127.0.0.1:{job.lane_ports[job.lane]}")
        self.send = self._socket.send

    def send_batch(self, payloads: list[bytes]) -> None:
        self._socket.send(pack_by_hand(payloads))

    def flush(self) -> None:
        """ZeroMQ has no flush: it sends on its own."""

    def close(self) -> None:
        self._context.destroy(linger=0)


def high_water_mark(job: Job) -> int:
    if job.load.stalled:
        return 0  # no limit: what the stalled subscriber has not read waits in the publisher
    return HIGH_WATER_MARK_BATCHES if job.load.mode == "batch" else HIGH_WATER_MARK_EVENTS


class PubSub(Peer):
    name = "pyzmq-pubsub"
    keeps = "nothing"
    packages = ("pyzmq",)
    holds_in_publisher = True
    sender: ClassVar[int] = zmq.PUB
    receiver: ClassVar[int] = zmq.SUB

    def publisher(self, job: Job) -> Publisher:
        return ZmqPublisher(job, self.sender)

    def subscribe(self, job: Job, sink: Sink) -> None:
        context = zmq.Context()
        socket = context.socket(self.receiver)
        socket.set_hwm(high_water_mark(job))
        if self.receiver == zmq.SUB:
            socket.subscribe(b"")
        for port in job.lane_ports:
            socket.connect(f"tcp://127.0.0.1:{port}")
        sink.ready()
        receive, take = socket.recv, sink.message if sink.is_batch else sink.one
        while not take(receive()):
            pass
        context.destroy(linger=0)


class PushPull(PubSub):
    name = "pyzmq-pushpull"
    sender = zmq.PUSH
    receiver = zmq.PULL

    def refuses(self, load: Load) -> str | None:
        return None if load.subscribers + load.stalled == 1 else "delivers an event to one subscriber only"
