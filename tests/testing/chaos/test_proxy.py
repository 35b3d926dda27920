"""Proxies: connections through them are forwarded, cut and held."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from reknit.testing.chaos.proxy import Mode, Proxies, Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=echo, args=(client,), daemon=True).start()

    def echo(client: socket.socket) -> None:
        with client, suppress(OSError):
            while data := client.recv(4096):
                client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    proxies = Proxies()
    yield proxies.add(server.getsockname()[1])
    proxies.close()
    server.close()


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)


def test_bytes_are_forwarded_both_ways(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_cut_closes_connections_and_refuses_new_ones_until_it_ends(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        proxy.change(Mode.CUT)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
    with connected(proxy) as client, suppress(ConnectionResetError):
        assert client.recv(100) == b""
    proxy.change(Mode.OPEN)
    with connected(proxy) as client:
        client.sendall(b"again")
        assert client.recv(100) == b"again"


def test_a_silent_proxy_forwards_what_it_got_when_it_speaks_again(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.change(Mode.SILENT)
        client.sendall(b"two")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(60)
        proxy.change(Mode.OPEN)
        assert client.recv(100) == b"two"
