"""The Python client against a real node: both schemes, restarts, and failed recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reknit.client import tunnel
from reknit.errors import NotConnected, RemoteError
from reknit.node.node import Node
from reknit.server import build_node
from tests.gateway.http.http_client import config, http_of


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 150))


def url(node: Node) -> str:
    return http_of(node).url


def port(node: Node) -> int:
    return int(url(node).rpartition(":")[2])


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def take(one: tunnel.Tunnel, count: int) -> list[str]:
    events: list[str] = []
    async for event in one:
        events.append(event.payload.decode())
        if len(events) == count:
            break
    return events


@pytest.mark.parametrize("scheme", ["kn_event_hash", "kn_route_checkpoint"])
def test_every_event_once_through_restarts_of_the_node(tmp_path: Path, scheme: str) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path, scheme=scheme)) as node:
            at = port(node)
            one = tunnel.open(url(node), "/what/chat")
            await one.__aenter__()
            await tunnel.notify(url(node), "what/chat", "0")
        got = await take(one, 1)
        for number in range(1, 4):
            async with build_node(config(tmp_path, scheme=scheme, port=at)) as node:
                await tunnel.notify(url(node), "what/chat", str(number))
                got += await take(one, 1)
        assert got == ["0", "1", "2", "3"]
        assert one.scheme == scheme
        assert one.state is not tunnel.State.LOST
        await one.close()

    run(test())


def test_repeats_after_a_reconnect_by_hash_are_not_delivered_twice(tmp_path: Path) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path)) as node:
            at = port(node)
            one = tunnel.open(url(node), "/what/chat")
            await one.__aenter__()
            for number in range(20):
                await tunnel.notify(url(node), "what/chat", str(number))
            assert await take(one, 20) == [str(number) for number in range(20)]
        async with build_node(config(tmp_path, port=at)) as node:
            await tunnel.notify(url(node), "what/chat", "new")
            assert await take(one, 1) == ["new"]
            assert one.repeats == 20
            await one.close()

    run(test())


@pytest.mark.parametrize("scheme", ["kn_event_hash", "kn_route_checkpoint"])
def test_a_node_that_lost_its_journal_gives_one_error_and_no_fresh_start(scheme: str) -> None:
    async def test() -> None:
        states: list[str] = []
        async with build_node(config(scheme=scheme)) as node:
            at = port(node)
            one = tunnel.open(url(node), "/what/chat", on_state=lambda state: states.append(state.value))
            await one.__aenter__()
        async with build_node(config(scheme=scheme, port=at)) as node:
            with pytest.raises(tunnel.TunnelLost, match="404 Expired"):
                await take(one, 1)
            await tunnel.notify(url(node), "what/chat", "after")
            assert len(http_of(node).tunnels) == 0
        assert states == ["opening", "live", "recovering", "lost"]
        await one.close()

    run(test())


def test_a_program_goes_on_from_the_checkpoint_of_an_earlier_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path)) as node:
            async with tunnel.open(url(node), "what/chat") as one:
                await tunnel.notify(url(node), "what/chat", "1")
                await take(one, 1)
                checkpoint = one.checkpoint
            await tunnel.notify(url(node), "what/chat", "2")
            async with tunnel.open(url(node), "what/chat", checkpoint=checkpoint) as one:
                assert await take(one, 1) == ["2"]
            with pytest.raises(tunnel.TunnelLost, match="404 Expired"):
                async with tunnel.open(url(node), "what/chat", checkpoint="00-0-0"):
                    pass

    run(test())


def test_no_server_is_not_connected_and_a_refusal_says_why() -> None:
    async def test() -> None:
        with pytest.raises(NotConnected):
            async with tunnel.open("http://127.0.0.1:1", "what/chat", wait_s=0.3):
                pass
        with pytest.raises(NotConnected):
            await tunnel.notify("http://127.0.0.1:1", "what/chat", "x")
        async with build_node(config(allow=("ann subscribe a",))) as node:
            with pytest.raises(tunnel.TunnelLost, match="403"):
                async with tunnel.open(url(node), "what/chat"):
                    pass
            with pytest.raises(RemoteError, match="403"):
                await tunnel.notify(url(node), "what/chat", "x")

    run(test())


def test_a_full_server_is_tried_again_and_is_no_loss(tmp_path: Path) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path, tunnels_max=1)) as node:
            first = tunnel.open(url(node), "what/chat")
            await first.__aenter__()
            second = tunnel.open(url(node), "what/chat", wait_s=20)
            opening = asyncio.ensure_future(second.__aenter__())
            await until(lambda: second.state is tunnel.State.WAITING)
            assert not opening.done()
            await first.close()
            await opening
            await tunnel.notify(url(node), "what/chat", "x", id="m1")
            async for event in second:
                assert (event.id, event.topic, event.payload) == ("m1", "what/chat", b"x")
                assert event.checkpoint == second.checkpoint
                break
            await second.close()

    run(test())


def test_a_silent_connection_counts_as_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path, heartbeat_s=60)) as node:
            recovered = asyncio.Event()

            def note(state: tunnel.State) -> None:
                if state is tunnel.State.RECOVERED:
                    recovered.set()

            async with tunnel.open(url(node), "what/chat", quiet_s_max=0.2, on_state=note) as one:
                await recovered.wait()
                await tunnel.notify(url(node), "what/chat", "x")
                assert await take(one, 1) == ["x"]

    run(test())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", NotConnected),
        (b"HTTP/1.1 200 OK\r\nContent-Le", NotConnected),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n12", NotConnected),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12", NotConnected),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n12", RemoteError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n", RemoteError),
    ],
)
def test_an_event_is_stored_only_if_the_whole_answer_says_so(answer: bytes, error: type[Exception]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            at = server.sockets[0].getsockname()[1]
            with pytest.raises(error):
                await tunnel.notify(f"http://127.0.0.1:{at}", "what/chat", "x")

    run(test())
