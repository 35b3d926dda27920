"""The benchmark's clients: what they count, and when they say that an event arrived."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.tunnel_clients import Clients

OPENED = b"HTTP/1.1 200 OK\r\n\r\nevent: opened\n\n"


@contextmanager
def _opened(count: int) -> Iterator[tuple[Clients, list[socket.socket]]]:
    """So many clients, and the other ends of their connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = Clients(listener.getsockname()[1])
        ends: list[socket.socket] = []

        def serve() -> None:
            for _ in range(count):
                ends.append(listener.accept()[0])
                ends[-1].sendall(OPENED)

        serving = threading.Thread(target=serve)
        serving.start()
        clients.open(count)
        serving.join()
    try:
        yield clients, ends
    finally:
        clients.close()
        for end in ends:
            end.close()


def test_an_event_arrives_when_its_bytes_do_not_when_they_are_read() -> None:
    with _opened(1) as (clients, ends):
        clients.note_arrivals()
        sent = time.time_ns()
        ends[0].sendall(b"data: ~0:%d:xxx\n\n" % sent)
        (sock,) = clients._sockets.values()
        assert select.select([sock], [], [], 10)[0]
        arrived_before = time.time_ns()
        (took,) = clients.time_until(1)
        assert 0 <= took <= (arrived_before - sent) / 1e9


def test_every_event_at_every_client_is_timed() -> None:
    with _opened(3) as (clients, ends):
        clients.note_arrivals()
        for end in ends:
            end.sendall(b"".join(b"data: ~%d:%d:xxx\n\n" % (number, time.time_ns()) for number in range(4)))
        assert len(clients.time_until(12)) == 12
        assert clients.events == 12


def test_reading_counts_events_and_keeps_what_came() -> None:
    with _opened(2) as (clients, ends):
        for end in ends:
            end.sendall(b"data: ~0:1:\n\n" + b"data: ~1:1:\n\n")
        clients.read_until(4)
        assert clients.numbers() == [2, 2]
