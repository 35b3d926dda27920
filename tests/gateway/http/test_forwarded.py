"""Trusted proxies say who their clients are; nobody else does."""

from __future__ import annotations

import socket

import pytest

from reknit.errors import InvalidConfig
from reknit.gateway.http.forwarded import SIGNATURE, TrustedProxies, read_proxy_header
from tests.gateway.http.http_client import Web, config, web


def proxied(address: str, family: int = 0x11, command: int = 0x21) -> bytes:
    kind = socket.AF_INET if family == 0x11 else socket.AF_INET6
    both = socket.inet_pton(kind, address) * 2 + bytes(4)
    return SIGNATURE + bytes((command, family)) + len(both).to_bytes(2, "big") + both


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("6.6.6.6, 198.51.100.7", "198.51.100.7"),
        ("6.6.6.6, 198.51.100.7, 10.1.2.3", "198.51.100.7"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("10.1.2.3", "10.1.2.3"),
        ("6.6.6.6, unknown", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_has(header: str, address: str) -> None:
    assert TrustedProxies(["127.0.0.1", "10.0.0.0/8"]).client("127.0.0.1", header) == address


def test_anybody_elses_word_does_not_count() -> None:
    assert TrustedProxies(["10.0.0.0/8"]).client("127.0.0.1", "198.51.100.7") == "127.0.0.1"
    assert not TrustedProxies([]).is_trusted("127.0.0.1")
    assert not TrustedProxies(["10.0.0.0/8"]).is_trusted("local")


@pytest.mark.parametrize(
    "data",
    [
        SIGNATURE + bytes((0x11, 0x11, 0, 12)) + bytes(12),
        SIGNATURE + bytes((0x21, 0x11, 0xFF, 0xFF)),
    ],
)
def test_a_header_of_another_version_or_without_end_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="PROXY"):
        read_proxy_header(data)


def test_a_header_without_an_address_is_skipped() -> None:
    local, unknown = proxied("9.9.9.9", command=0x20), SIGNATURE + bytes((0x21, 0, 0, 0))
    assert [read_proxy_header(one) for one in (local, unknown)] == [(28, ""), (16, "")]


def refused_for(node: Web, before: bytes = b"", headers: str = "") -> bytes:
    """Why the second tunnel of one address is refused."""
    head = f"GET /sse?topic=a HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
    with node.connect() as first, node.connect() as second:
        first.sendall(before + head)
        while b"opened" not in first.recv(65_536):
            pass
        for byte in before:  # it may come in any pieces
            second.sendall(bytes((byte,)))
        second.sendall(head)
        answer = b""
        while b"tunnels_per_address_max" not in answer:
            data = second.recv(65_536)
            assert data, answer
            answer += data
        return answer


def test_limits_count_the_clients_of_a_trusted_proxy_each() -> None:
    with web(config(trusted_proxies=("127.0.0.1",), tunnels_per_address_max=1)) as node:
        for_one = "X-Forwarded-For: 198.51.100.7\r\n"
        assert b"198.51.100.7 has 1 tunnels" in refused_for(node, headers=for_one)
        assert b"198.51.100.8 has 1 tunnels" in refused_for(node, before=proxied("198.51.100.8"))
        assert b"2001:db8::1 has 1 tunnels" in refused_for(node, before=proxied("2001:db8::1", family=0x21))


def test_without_trust_a_client_can_not_pretend_to_be_another() -> None:
    with web(config(tunnels_per_address_max=1)) as node:
        assert b"127.0.0.1 has 1 tunnels" in refused_for(node, headers="X-Forwarded-For: 198.51.100.7\r\n")
        with node.connect() as connection:
            connection.sendall(proxied("198.51.100.8") + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_the_host_that_a_trusted_proxy_was_asked_for_is_the_pages_own() -> None:
    forwarded = {"X-Forwarded-Host": "events.example", "Origin": "https://events.example"}
    form = b"kn_to=/a;kn_payload=x"
    for trusted, code in (("127.0.0.1", 200), ("10.0.0.1", 403)):
        with web(config(trusted_proxies=(trusted,), hosts=("events.example",))) as node:
            assert node.request("/kn", "POST", form, **forwarded).code == code


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="is not an address or a network"):
        config(trusted_proxies=("10.0.0.1/8",))
