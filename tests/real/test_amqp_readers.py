"""An AMQP client that does not read costs its node bounded memory, and its neighbours nothing."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

import proton

import reknit
from reknit.processes.process import NodeProcess, ending, free_port
from reknit.testing.load.probe import memory_bytes
from tests.gateway.amqp.clients import start

pytestmark = pytest.mark.real

WAIT_S = 150.0
PAYLOAD = b"x" * 1_000
BATCH = 1_000
CREDIT = 1_000_000


class Reader:
    """A receiver over a socket of its own, which reads only when it is told to."""

    def __init__(self, port: int, topic: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection = proton.Connection()
        connection.container = f"reader of {topic}"
        self._transport = proton.Transport()
        self._transport.bind(connection)
        session = connection.session()
        self._link = session.receiver("r")
        self._link.source.address = topic
        for one in (connection, session, self._link):
            one.open()
        self._link.flow(CREDIT)
        while not self._link.state & proton.Endpoint.REMOTE_ACTIVE or self._transport.pending() > 0:
            self.exchange()
        self.received = 0

    def exchange(self) -> None:
        """Send what is to be sent, and read what has come; wait for something, if there is nothing to send."""
        if (pending := self._transport.pending()) > 0:
            self._transport.pop(self._socket.send(self._transport.peek(pending)))
            return
        data = self._socket.recv(64 << 10)
        assert data, "the node closed the connection"
        while data:
            taken = min(self._transport.capacity(), len(data))
            self._transport.push(data[:taken])
            data = data[taken:]

    def read(self, count: int) -> None:
        """Accept messages until there were so many."""
        deadline = time.monotonic() + WAIT_S
        while self.received < count:
            assert time.monotonic() < deadline, f"{self.received} of {count} messages came"
            while (delivery := self._link.current) is not None and not delivery.partial:
                delivery.update(proton.Delivery.ACCEPTED)
                delivery.settle()  # which makes the next one current
                self.received += 1
            if self.received < count:
                self.exchange()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def reader(port: int, topic: str) -> Iterator[Reader]:
    one = Reader(port, topic)
    try:
        yield one
    finally:
        one.close()


def publish(session: reknit.SyncSession, topic: str, batches: int) -> None:
    for _ in range(batches):
        session.publish_many(topic, [PAYLOAD] * BATCH)


def test_clients_that_do_not_read_cost_bounded_memory_and_no_neighbour_anything(tmp_path: Path) -> None:
    """Four of them follow the same topic: what is published there is in memory neither four times nor once."""
    port, batches = free_port(), 20
    settings = ("amqp.idle_s=600", "journal.tail_cache_bytes=4 MiB", "journal.sync=false")
    options = [option for one in settings for option in ("--set", one)]
    node = NodeProcess(tmp_path, "--amqp", f"127.0.0.1:{port}", *options)
    with ending(node), ExitStack() as readers:
        start(node, port)
        session = readers.enter_context(reknit.connect_sync(node.url))
        stalled = [readers.enter_context(reader(port, "flood")) for _ in range(4)]
        neighbour = readers.enter_context(reader(port, "calm"))
        publish(session, "flood", batches)
        before = memory_bytes(node.pid)
        publish(session, "flood", batches)
        grown = memory_bytes(node.pid) - before
        print(f"{before >> 20} MiB, then {grown >> 20} MiB more", file=sys.stderr)
        assert grown < batches * BATCH * len(PAYLOAD), "the journal has it, and that is enough"
        publish(session, "calm", 1)
        neighbour.read(BATCH)
        assert session.status()["amqp"]["connections"] == 5
        stalled[0].read(2 * batches * BATCH)
        assert "Traceback" not in node.output()
