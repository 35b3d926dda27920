"""The simulated network: bytes in order, full buffers, cuts, resets, crashes with and without power."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from reknit.testing.fabric.fabric import Fabric

PORT = 9000
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(seed=3) as made:
        made.network.split_share = 0.5
        yield made


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _talk(fabric: Fabric, client: Client) -> bytes:
    server, here = fabric.host("server"), fabric.host("client")
    await server.run(asyncio.start_server(_echo, server.address, PORT))

    async def connect() -> bytes:
        reader, writer = await asyncio.open_connection(server.address, PORT)
        try:
            return await client(reader, writer)
        finally:
            writer.close()

    return await here.run(connect())


def test_bytes_arrive_in_order_through_small_buffers(fabric: Fabric) -> None:
    fabric.network.socket_bytes = 100
    sent = b"".join(b"%d " % number for number in range(50_000))

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        async def write() -> None:
            for at in range(0, len(sent), 7_000):
                writer.write(sent[at : at + 7_000])
                await writer.drain()
            writer.write_eof()

        task = asyncio.create_task(write())
        received = await reader.read(-1)
        await task
        return received

    assert fabric.run(_talk(fabric, client)) == sent


def test_what_is_sent_through_a_cut_arrives_after_it_heals(fabric: Fabric) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        one, two = fabric.host("client").address, fabric.host("server").address
        fabric.network.cut(one, two)
        asyncio.get_running_loop().call_later(30.0, fabric.network.heal, one, two)
        writer.write(b"late")
        return await reader.readexactly(4)

    assert fabric.run(_talk(fabric, client)) == b"late"
    assert fabric.loop.now > 30


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_killed_program_resets_its_connections_and_a_dead_machine_is_silent(
    fabric: Fabric, is_power_lost: bool
) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        host = fabric.host("server")
        host.crash(is_power_lost=is_power_lost)
        fabric.network.crashed(host)
        try:
            async with asyncio.timeout(100.0):
                return await reader.read(10)
        except ConnectionResetError:
            return b"reset"
        except TimeoutError:
            return b"silence"

    assert fabric.run(_talk(fabric, client)) == (b"silence" if is_power_lost else b"reset")


def test_nobody_listens_on_a_host_after_a_crash(fabric: Fabric) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        host = fabric.host("server")
        host.crash(is_power_lost=False)
        fabric.network.crashed(host)
        host.start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host.address, PORT)
        return b""

    fabric.run(_talk(fabric, client))
