"""Thousands of SSE clients in one process, which count, time and check events."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from urllib.parse import urlencode

MARK = b"~"
"""It is in every event's payload once, and nowhere else."""
_TIME = re.compile(rb"~(\d+):(\d+):")
_ID = re.compile(rb"id: (\S+)")
WAIT_S = 120.0
RECEIVE_BYTES = 1 << 18
SO_TIMESTAMPNS = 35
"""A constant of Linux that Python's `socket` lacks."""
_NOTED = struct.Struct("qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(_NOTED.size)


def raise_limit(files: int) -> int:
    """Raise the limit of open files to `count`, or as far as is allowed. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, max(hard, files)))
            return files
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(soft, min(files, hard))


def post(port: int) -> float:
    """Publish an event on another topic. Returns how long the response took."""
    body = urlencode({"kn_to": "/other", "kn_payload": "x"}).encode()
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
        head = (
            b"POST /kn HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        sock.sendall(head + body)
        assert b" 200 " in sock.recv(65536)
    return time.perf_counter() - began


class Probe:
    """A process that posts an event every 50 ms, and records how long each response takes."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.tunnel_clients", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> list[float]:
        """Stop the process. Returns how long each response took."""
        told, _ = self._process.communicate()
        waits: list[float] = json.loads(told)
        return waits


def probe(port: int) -> None:
    """Post until stdin ends."""
    waits: list[float] = []
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        waits.append(post(port))
    print(json.dumps(waits))


def _arrival_ns(noted: list[tuple[int, int, bytes]]) -> int:
    """When the last of the bytes arrived, in nanoseconds since 1970."""
    (_, _, data), *_ = noted
    seconds, ns = _NOTED.unpack(data)
    return int(seconds * 1_000_000_000 + ns)


def _await_notes() -> None:
    """Wait until the kernel records arrivals: it starts a moment after it was asked to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = socket.create_connection(listener.getsockname(), WAIT_S)
        writer, _ = listener.accept()
    with reader, writer:
        reader.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        until = time.monotonic() + WAIT_S
        noted: list[tuple[int, int, bytes]] = []
        while not noted:
            assert time.monotonic() < until, "the kernel does not record when bytes arrive"
            writer.sendall(b"x")
            _, noted, _, _ = reader.recvmsg(1, ANCILLARY_BYTES)


class Clients:
    """All clients. They do little work: they count the mark, and drop the rest unless it is needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.events = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._order: list[int] = []
        self._texts: dict[int, bytes] = {}
        self._kept: list[bytes] = []

    def open(self, count: int, ids: list[str] | None = None) -> None:
        """Connect all, then wait until each has the first event of its response."""
        address = ("127.0.0.1", self.port)
        for number in range(count):
            sock = socket.socket()
            sock.bind((f"127.0.0.{2 + number // 10_000}", 0))
            sock.connect(address)
            last = f"Last-Event-ID: {ids[number]}\r\n" if ids else ""
            sock.sendall(f"GET /sse?topic=what/chat HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
            sock.setblocking(False)
            self._sockets[sock.fileno()] = sock
            self._order.append(sock.fileno())
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._texts = dict.fromkeys(self._sockets, b"")
        waiting = set(self._sockets)
        until = time.monotonic() + WAIT_S
        while waiting:
            for fd, data in self._receive():
                self._texts[fd] += data
                if b"opened" in self._texts[fd]:
                    waiting.discard(fd)
            assert time.monotonic() < until, f"{len(waiting)} clients got no answer"

    def _receive(self) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for fd, _ in self._epoll.poll(1.0, 4096):
            try:
                size = self._sockets[fd].recv_into(self._buffer)
            except ConnectionResetError:
                size = 0
            if not size:
                self._epoll.unregister(fd)
            data = bytes(memoryview(self._buffer)[:size])
            self.events += data.count(MARK)
            found.append((fd, data))
        return found

    def read_until(self, events: int) -> None:
        """Read until `events` events have arrived in all."""
        until = time.monotonic() + WAIT_S
        while self.events < events:
            for fd, data in self._receive():
                if len(self._texts[fd]) < 200_000:
                    self._texts[fd] += data
            assert time.monotonic() < until, f"{self.events} of {events} events came"
        assert self.events == events, f"{self.events} events came, not {events}"

    def time_until(self, events: int) -> list[float]:
        """Read until `events` events have arrived in all. Returns the time from each event's creation to its arrival.

        The kernel records when bytes arrive. A client of its own would read them then. Here one process reads for all
        clients, and the last one's wait is not the server's.
        """
        took: list[float] = []
        until = time.monotonic() + WAIT_S
        while self.events < events:
            for fd, _ in self._epoll.poll(1.0, 4096):
                size, noted, _, _ = self._sockets[fd].recvmsg_into([self._buffer], ANCILLARY_BYTES)
                arrived = _arrival_ns(noted)
                times = _TIME.findall(self._buffer, 0, size)
                self.events += len(times)
                took += [(arrived - int(at)) / 1e9 for _, at in times]
            assert time.monotonic() < until, f"{self.events} of {events} events came"
        return took

    def note_arrivals(self) -> None:
        """Let the kernel record when bytes arrive."""
        for sock in self._sockets.values():
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        _await_notes()

    def read_some(self) -> None:
        for fd, data in self._receive():
            self._texts[fd] += data

    def drain(self) -> None:
        """Read what was sent before the server was killed, to the end of every connection."""
        open_ones = set(self._sockets)
        while open_ones:
            for fd, data in self._receive():
                self._texts[fd] += data
                if not data:
                    open_ones.discard(fd)

    def numbers(self) -> list[int]:
        return [text.count(MARK) for text in self._texts.values()]

    def reopen(self) -> float:
        """Reconnect all, each after its last complete event. Returns how long that took."""
        self._kept = [self._texts[fd] for fd in self._order]
        ids = [_ID.findall(text.rpartition(b"\n\n")[0])[-1].decode() for text in self._kept]
        self.close()
        count, self._order, self._sockets = len(self._order), [], {}
        self._epoll = select.epoll()
        began = time.perf_counter()
        self.open(count, ids)
        return time.perf_counter() - began

    def is_complete(self, events: int) -> bool:
        """Whether every client has so many events, before and after the reconnect."""
        return all(len(self._seen(at)) >= events for at in range(len(self._order)))

    def _seen(self, at: int) -> list[int]:
        before = self._kept[at].rpartition(b"\n\n")[0]
        return [int(n) for text in (before, self._texts[self._order[at]]) for n, _ in _TIME.findall(text)]

    def wrong(self, events: int) -> int:
        """The number of clients that did not receive each event exactly once, in order."""
        return sum(self._seen(at) != list(range(events)) for at in range(len(self._order)))

    def states(self) -> dict[str, int]:
        """The contents of the first events."""
        texts = (self._texts[fd] for fd in self._order)
        return dict(Counter(text.partition(b'"state":"')[2].partition(b'"')[0].decode() for text in texts))

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._epoll.close()


if __name__ == "__main__":
    probe(int(sys.argv[1]))
