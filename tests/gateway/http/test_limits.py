"""Shared bytes, slow tunnels, large and slow requests, and a server that stops."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.config import LimitSettings, SecuritySettings, TopicSettings
from reknit.config.units import KIB, MIB
from reknit.topic import Pattern
from tests.gateway.http.http_client import Web, config, payloads, web


def test_a_batch_is_encoded_once_for_all_tunnels_of_a_format_and_topic(node: Web) -> None:
    streams = [node.tunnel() for _ in range(20)]
    for stream in streams:
        stream.events(1)
    for number in range(5):
        node.post("/what/chat", str(number))
    bodies = {stream.events(6)[1]["kn_event_hash"] for stream in streams}
    assert len(bodies) == 1
    assert node.http.feed.encoded == 5
    for stream in streams:
        stream.close()


def test_many_that_come_back_to_the_same_place_are_read_for_once(tmp_path: Path) -> None:
    with web(config(tmp_path)) as node:
        with node.tunnel() as stream:
            place = stream.events(1)[0]["kn_route_checkpoint"].decode()
        for number in range(5):
            node.post("/what/chat", str(number))
        encoded = node.http.feed.encoded
        streams = [node.tunnel(do_since_checkpoint=place) for _ in range(20)]
        for stream in streams:
            assert payloads(stream.events(6))[1:] == ["0", "1", "2", "3", "4"]
            stream.close()
        assert node.http.feed.encoded - encoded == 5


def test_a_tunnel_that_takes_nothing_is_closed_with_a_reason_and_can_recover(tmp_path: Path) -> None:
    with web(config(tmp_path, tunnel_bytes_max=20_000, stall_s_max=0.2)) as node, ExitStack() as stack:
        slow = stack.enter_context(node.tunnel())
        slow.events(1)
        count = 0
        # the tunnel is counted shortly after its first event was sent
        while (len(node.http.tunnels) or not count) and count < 2_000:
            node.post("/what/chat", "x" * 20_000)
            count += 1
        assert len(node.http.tunnels) == 0, "it was never closed"
        # no more was written for it than the buffers of the sockets and of the server could hold; the last event may be
        # cut anywhere
        places = re.findall(rb"kn_route_checkpoint: (\S+)\n", slow.rest())
        last, got = places[-1].decode(), len(places) - 1
        assert got < count
    # a client that is slow because its machine is busy is not closed here
    with web(config(tmp_path)) as node, node.tunnel(do_since_checkpoint=last) as again:
        assert len(again.events(1 + count - got)) == 1 + count - got


def test_a_tunnel_that_is_slow_but_takes_something_catches_up_and_misses_nothing() -> None:
    with web(config(tunnel_bytes_max=20_000, stall_s_max=60)) as node:
        slow = node.tunnel()
        slow.events(1)
        count = 0
        while not node.http.tunnels.counts()["blocked"]:
            node.post("/what/chat", f"{count}:" + "x" * 20_000)
            count += 1
        numbers = [int(one.partition(":")[0]) for one in payloads(slow.events(1 + count))[1:]]
        assert numbers == list(range(count))
        node.post("/what/chat", "live again")
        assert payloads(slow.events(2 + count))[-1] == "live again"
        slow.close()


def test_what_waits_for_a_tunnel_counts_against_the_budget_of_a_peer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = LimitSettings(
        frame_bytes_max=64 * KIB, payload_bytes_max=32 * KIB, batch_bytes=16 * KIB, peer_bytes_max=64 * KIB
    )
    settings = replace(config(tunnel_bytes_max=64 * MIB, stall_s_max=600), limits=limits)
    with web(settings) as node, ExitStack() as stack:
        slow, other = stack.enter_context(node.tunnel()), stack.enter_context(node.tunnel("/what/else"))
        slow.events(1)
        other.events(1)
        count = 0
        while "(limits.peer_bytes_max)" not in caplog.text and count < 5_000:
            node.post("/what/chat", "x" * 20_000)
            count += 1
        assert len(node.http.tunnels) == 1, "it was never closed"
        node.post("/what/else", "the other goes on")
        assert payloads(other.events(2))[-1] == "the other goes on"


def test_a_request_that_is_too_large_is_413_and_long_headers_are_431() -> None:
    with web(config(request_bytes_max=2_000)) as node:
        assert node.post("/what/chat", "x" * 3_000).code == 413
        assert node.request("/kn", X="y" * 40_000).code == 431


def test_what_is_no_http_is_400(node: Web) -> None:
    with node.connect() as sock:
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b" 400 " in sock.recv(1000)


def test_a_request_that_does_not_arrive_is_not_waited_for() -> None:
    with web(config(request_timeout_s=0.1)) as node, node.connect() as sock:
        sock.sendall(b"GET /kn HTTP/1.1\r\n")
        assert sock.recv(1000) == b""


def test_stopping_tells_every_tunnel_and_waits_for_none_that_hangs() -> None:
    with ExitStack() as stack:
        with web() as node:
            streams = [stack.enter_context(node.tunnel()) for _ in range(100)]
            stack.enter_context(node.connect())  # it never sends a request
        for stream in streams:
            assert b"the server stops" in stream.rest()


def test_a_missing_page_says_what_there_is(node: Web) -> None:
    answer = node.request("/nothing")
    assert answer.code == 404
    assert b"/sse" in answer.body
    assert b"/sse" in node.request("/").body


def test_the_limit_per_address_is_a_503_without_a_word_on_reconnecting() -> None:
    with web(config(tunnels_per_address_max=1)) as node, node.tunnel() as first:
        first.events(1)
        answer = node.get(kn_from="/what/chat")
        assert (answer.code, answer.headers["retry-after"]) == (503, "10")
        assert b"status" not in answer.body


def test_a_post_over_the_quota_gets_429_with_its_name_and_tunnels_count_as_connections() -> None:
    # what one post uses takes a thousand seconds to come back, so it does not matter how fast the posts follow
    security = SecuritySettings(quotas=("* bytes_per_s=1 connections=1",))
    with web(replace(config(request_timeout_s=1.0), security=security)) as node:
        assert node.post("/what/chat", "x" * 1_000).code == 200
        refused = node.post("/what/chat", "more")
        assert refused.code == 429
        assert b"bytes_per_s=1" in refused.body
        with node.stream("/sse?topic=what/chat") as stream:
            stream.until(b"live")
            with node.stream("/sse?topic=what/chat") as other:
                other.until(b"as many connections as allowed (1)")
        assert len(node.node.journal.topics()) == 1


def test_a_topic_whose_dead_letters_are_full_waits_alone() -> None:
    rules = (TopicSettings(pattern=Pattern("bad/*"), dead_letters_max=1, ttl_ms=1),)
    with web(replace(config(request_timeout_s=1.0), topics=rules)) as node:
        asyncio.run(_away(node.node.urls[0]))
        assert node.post("/bad/1", "x").code == 200
        deadline = time.monotonic() + 60
        while not node.node.figures.status()["dead_letters"]["stopped"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert node.post("/bad/1", "y").code == 503
        assert node.post("/good/1", "x").code == 200


async def _away(url: str) -> None:
    """A durable subscriber that is owed everything, and is away."""
    async with connect(url) as session, session.subscribe("**", name="away"):
        pass
