"""UDP multicast: sockets, buffers, offload."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reknit.errors import InvalidConfig
from reknit.transport.udp import UdpConfig, UdpTransport, _runs, parse_address
from reknit.wire.bundle import Datagram
from tests.multicast_addresses import multicast_address


def test_datagrams_of_one_size_go_together_and_a_shorter_one_ends_a_run() -> None:
    sizes = [3, 3, 2, 3, 4, 4]
    runs = [(sum(map(len, parts)), size) for parts, size in _runs([[bytes(size)] for size in sizes])]
    assert runs == [(8, 3), (3, 0), (8, 4)]


def test_a_run_is_never_longer_than_a_datagram_may_be() -> None:
    lengths = [sum(map(len, parts)) for parts, _ in _runs([[bytes(28), bytes(1372)]] * 200)]
    assert sum(lengths) == 280_000
    assert all(length <= 65_507 for length in lengths)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interface": "localhost"}, "setting group.interface .* must be an IPv4 address such as 127.0.0.1"),
        (
            {"interface": "203.0.113.9"},
            "setting group.interface .* 203.0.113.9: Cannot assign requested address",
        ),
        ({"group": "example.org:7475"}, "setting group.address .* must be an IPv4 address"),
        ({"group": "203.0.113.9:7475"}, "setting group.address .* 203.0.113.9:7475: "),
    ],
)
def test_an_address_that_can_not_be_used_names_its_setting(options: dict[str, Any], text: str) -> None:
    async def main() -> None:
        transport = UdpTransport(UdpConfig(**options))
        try:
            with pytest.raises(InvalidConfig, match=text):
                await transport.listen()
        finally:
            await transport.close()

    asyncio.run(main())


def test_an_address_without_a_port_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidConfig, match="must be HOST:PORT, not 'nowhere'"):
        parse_address("nowhere")


async def exchange(offload: bool, datagrams: list[bytes], *, to_all: bool) -> list[bytes]:
    """Send from one transport to another, and to itself if it were not kept from it."""
    config = UdpConfig(group=multicast_address(), is_offload_wanted=offload)
    sender, receiver = UdpTransport(config), UdpTransport(config)
    got: list[bytes] = []
    own: list[bytes] = []
    await sender.listen()
    await receiver.listen()
    await sender.open(lambda data, address: own.append(bytes(data)), lambda: None)
    await receiver.open(lambda data, address: got.append(bytes(data)), lambda: None)
    parts: list[Datagram] = [[each[:10], each[10:]] for each in datagrams]
    if to_all:
        sender.send_all(parts)
    else:
        sender.send(parts, receiver.address)
    async with asyncio.timeout(60):
        while len(got) < len(datagrams):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await sender.close()
    await receiver.close()
    assert own == []
    return got


@pytest.mark.real
@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("to_all", [True, False])
def test_datagrams_arrive_as_they_were_sent_and_not_at_their_sender(offload: bool, to_all: bool) -> None:
    datagrams = [bytes([number % 256]) * 1400 for number in range(150)] + [b"short", b"x" * 60_000]
    assert asyncio.run(exchange(offload, datagrams, to_all=to_all)) == datagrams


@pytest.mark.real
def test_a_buffer_that_the_kernel_clamps_is_a_warning_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reknit.transport.udp._SO_RCVBUFFORCE", 0)

    async def main() -> UdpTransport:
        transport = UdpTransport(UdpConfig(group="", receive_buffer_bytes=1 << 30))
        await transport.listen()
        await transport.close()
        return transport

    transport = asyncio.run(main())
    assert transport.buffer_bytes < 1 << 30
    assert "sysctl -w net.core.rmem_max=1073741824" in transport.warnings[0]


@pytest.mark.real
def test_loopback_takes_whole_batches_in_a_datagram() -> None:
    async def main() -> int:
        transport = UdpTransport(UdpConfig(group=""))
        await transport.listen()
        await transport.close()
        return transport.piece_bytes

    assert asyncio.run(main()) == 65_400


@pytest.mark.real
def test_a_datagram_of_very_many_parts_arrives_whole() -> None:
    async def main() -> list[bytes]:
        config = UdpConfig(group="")
        sender, receiver = UdpTransport(config), UdpTransport(config)
        got: list[bytes] = []
        for each in (sender, receiver):
            await each.listen()
            await each.open(lambda data, address: got.append(bytes(data)), lambda: None)
        sender.send([[b"%04d" % number for number in range(3000)]], receiver.address)
        async with asyncio.timeout(60):
            while not got:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await sender.close()
        await receiver.close()
        return got

    assert asyncio.run(main()) == [b"".join(b"%04d" % number for number in range(3000))]
