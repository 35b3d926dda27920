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
from reknit.protocol.tunnel.simple_format import encode
from reknit.server import build_node
from tests.gateway.http.http_client import config, http_of


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 150))


def opened(url: str, topic: str, **options: Any) -> tunnel.Tunnel:
    """A tunnel that waits for its node as long as a busy machine needs."""
    return tunnel.open(url, topic, **{"wait_s": 150.0, **options})


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
            one = opened(url(node), "/what/chat")
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
            one = opened(url(node), "/what/chat")
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
            one = opened(url(node), "/what/chat", on_state=lambda state: states.append(state.value))
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
            async with opened(url(node), "what/chat") as one:
                await tunnel.notify(url(node), "what/chat", "1")
                await take(one, 1)
                checkpoint = one.checkpoint
            await tunnel.notify(url(node), "what/chat", "2")
            async with opened(url(node), "what/chat", checkpoint=checkpoint) as one:
                assert await take(one, 1) == ["2"]
            with pytest.raises(tunnel.TunnelLost, match="404 Expired"):
                async with opened(url(node), "what/chat", checkpoint="00-0-0"):
                    pass

    run(test())


def test_no_server_is_not_connected_and_a_refusal_says_why() -> None:
    async def test() -> None:
        with pytest.raises(NotConnected):
            async with opened("http://127.0.0.1:1", "what/chat", wait_s=0.3):
                pass
        with pytest.raises(NotConnected):
            await tunnel.notify("http://127.0.0.1:1", "what/chat", "x")
        async with build_node(config(allow=("ann subscribe a",))) as node:
            with pytest.raises(tunnel.TunnelLost, match="403"):
                async with opened(url(node), "what/chat"):
                    pass
            with pytest.raises(RemoteError, match="403"):
                await tunnel.notify(url(node), "what/chat", "x")

    run(test())


def test_a_full_server_is_tried_again_and_is_no_loss(tmp_path: Path) -> None:
    async def test() -> None:
        async with build_node(config(tmp_path, tunnels_max=1)) as node:
            first = opened(url(node), "what/chat")
            await first.__aenter__()
            second = opened(url(node), "what/chat")
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


class Scripted:
    """A server that says the next of several things on each connection, and then nothing more."""

    def __init__(self, *answers: bytes, is_closing: bool = False) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.is_closing = is_closing

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *args: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request.decode())
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        if not self.is_closing:
            await reader.read()
        writer.close()


def simple(payload: str, **elements: str) -> bytes:
    return encode(elements.items(), payload.encode())


OPENED = b"HTTP/1.1 200 OK\r\n\r\n" + simple("", status="200 OK", kn_route_checkpoint="c1")


def test_a_silent_connection_counts_as_cut_off() -> None:
    async def test() -> None:
        states: list[str] = []
        async with (
            Scripted(OPENED, OPENED + simple("x")) as server,
            opened(
                server.url, "what/chat", quiet_s_max=0.2, on_state=lambda state: states.append(state.value)
            ) as one,
        ):
            assert await take(one, 1) == ["x"]
            assert states[:4] == ["opening", "live", "recovering", "recovered"]
            assert "do_since_checkpoint=c1" in server.requests[1]

    run(test())


def test_an_attempt_that_hangs_through_the_grace_period_is_lost_though_200_comes_later() -> None:
    hash_scheme = {"kn_journal_reconnect_scheme": "kn_event_hash", "kn_journal_reconnect_timeout": "0.3"}
    first = b"HTTP/1.1 200 OK\r\n\r\n" + simple("", status="200 OK", **hash_scheme)

    async def test() -> None:
        async with Scripted(first, b"", is_closing=False) as server:
            one = opened(server.url, "what/chat", quiet_s_max=0.1)
            with pytest.raises(tunnel.TunnelLost, match=r"grace period is 0 s"):
                async with one:
                    await take(one, 1)
            assert one.state is tunnel.State.CLOSED

    run(test())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"302 Found\r\nLocation: http://login/\r\nContent-Length: 0\r\n\r\n", r"HTTP 302 to http://login/"),
        (b"403 Forbidden\r\nContent-Length: 15\r\n\r\n<h1>No way</h1>", r"HTTP 403, .*: 'No way'"),
        (b"200 OK\r\nContent-Length: 18\r\n\r\n<html>Hello</html>", r"HTTP 200, .*: 'Hello'"),
        (b"404 Expired\r\n\r\n" + simple("purged", status="404 Expired"), r"404 Expired"),
    ],
)
@pytest.mark.parametrize("is_resuming", [False, True])
def test_an_answer_that_is_no_tunnel_is_one_error_with_the_address_and_what_came(
    answer: bytes, why: str, is_resuming: bool
) -> None:
    answer = b"HTTP/1.1 " + answer
    answers = [OPENED, answer] if is_resuming else [answer]

    async def test() -> None:
        async with Scripted(*answers, is_closing=True) as server:
            with pytest.raises(tunnel.TunnelLost, match=why) as caught:
                async with opened(server.url, "what/chat") as one:
                    await take(one, 1)
            assert server.url in str(caught.value) or "Expired" in why
            assert len(server.requests) == len(answers)

    run(test())


def test_a_gateways_502_is_tried_again_and_is_told_as_one_state() -> None:
    bad = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 20\r\n\r\n<html>bad gateway   "

    async def test() -> None:
        told: list[tuple[str, str]] = []

        def note(state: tunnel.State) -> None:
            told.append((state.value, one.why))

        async with Scripted(bad, bad, OPENED, bad, bad, bad, OPENED + simple("x"), is_closing=True) as server:
            one = opened(server.url, "what/chat", on_state=note)
            async with one:
                assert await take(one, 1) == ["x"]
            states = [state for state, _ in told]
            assert states[:5] == ["opening", "waiting", "live", "recovering", "recovered"]
            assert told[1][1] == f"{server.url}/kn answered HTTP 502, which is no tunnel: 'bad gateway'"

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
