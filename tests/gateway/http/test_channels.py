"""Several tunnels on one WebSocket, credit, and compression."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from reknit.client.blocking.session import connect_sync
from reknit.config import SecuritySettings
from reknit.gateway.http.channels import Channel
from tests.gateway.http.http_client import Web, config, web


class Channels:
    """A client with its messages, each with the channel that it came on."""

    def __init__(self, node: Web, query: str = "", **options: Any) -> None:
        self._opening = connect(f"ws://127.0.0.1:{node.port}/ws{query}", **options)
        self.at = 0

    def __enter__(self) -> Channels:
        self.socket: ClientConnection = self._opening.__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        self._opening.__exit__(*args)

    def say(self, **message: object) -> None:
        self.socket.send(json.dumps(message))

    def next(self) -> tuple[int, dict[str, Any]]:
        """The next message that is no heartbeat."""
        while True:
            data = self.socket.recv(150)
            if isinstance(data, bytes):
                return self.at, {"type": "batch", "data": msgspec.msgpack.decode(data)}
            found = json.loads(data)
            if found["type"] == "channel":
                self.at = found["channel"]
            elif found["type"] != "heartbeat":
                return found.get("channel", self.at), found

    def reason(self) -> str:
        """Why the node closes the connection."""
        with pytest.raises(ConnectionClosed) as closed:
            self.next()
        assert closed.value.rcvd is not None
        return closed.value.rcvd.reason

    def open(self, number: int, topic: str, **options: object) -> dict[str, Any]:
        self.say(open=topic, channel=number, **options)
        channel, opened = self.next()
        assert channel == number
        return opened


def test_channels_open_and_close_while_the_connection_stays(node: Web) -> None:
    with Channels(node) as one:
        assert one.open(1, "a/*")["state"] == "live"
        assert one.open(2, "b")["state"] == "live"
        for topic in ("/a/1", "/b", "/c", "/a/2"):
            node.post(topic, topic)
        assert [(at, found["payload"]) for at, found in (one.next() for _ in range(3))] == [
            (1, "/a/1"),
            (2, "/b"),
            (1, "/a/2"),
        ]
        one.say(close=1)
        one.open(3, "c")
        for topic in ("/a/3", "/c"):
            node.post(topic, topic)
        at, found = one.next()
        assert (at, found["payload"]) == (3, "/c")
        assert len(node.http.tunnels) == 2


def test_a_channel_resumes_from_its_own_checkpoint_or_says_that_it_cannot(node: Web) -> None:
    with Channels(node) as one:
        place = one.open(1, "a")["checkpoint"]
        node.post("/a", "1")
        node.post("/b", "2")
        one.next()
        opened = one.open(2, "b", **{"from": place})
        assert opened["state"] == "recovered"
        assert one.next()[1]["payload"] == "2"
        opened = one.open(3, "b", **{"from": "00-0-0"})
        assert (opened["state"], "earlier journal" in opened["why"]) == ("lost", True)


def test_the_topic_of_the_address_and_further_channels_share_a_connection(node: Web) -> None:
    with Channels(node, "?topic=a") as one:
        assert one.next()[1]["state"] == "live"
        one.open(5, "b")
        node.post("/a", "first")
        node.post("/b", "second")
        assert [(at, found["payload"]) for at, found in (one.next(), one.next())] == [
            (0, "first"),
            (5, "second"),
        ]


def test_a_channel_that_may_not_be_is_refused_alone_with_a_code() -> None:
    with web(config(allow=("* subscribe a/*",), channels_max=2)) as node, Channels(node) as one:
        assert one.open(1, "b")["code"] == 403
        assert one.open(1, "a//b")["code"] == 400
        assert one.open(1, "a/1")["state"] == "live"
        one.open(2, "a/2")
        refused = one.open(3, "a/3")
        assert (refused["code"], "http.channels_max" in refused["why"]) == (429, True)


def test_channels_count_as_subscriptions_of_their_user() -> None:
    quotas = SecuritySettings(quotas=("* subscriptions=1 connections=1",))
    with web(replace(config(), security=quotas)) as node, Channels(node) as one:
        one.open(1, "a")
        assert one.open(2, "b")["code"] == 429
        one.say(close=1)
        assert one.open(2, "b")["state"] == "live"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("nothing", "not an object in JSON"),
        ("[" * 50_000, "longer than http.request_bytes_max"),
        ('{"open": "a"}', "each with a channel"),
        ('{"open": "a", "channel": 0}', "each with a channel"),
        ('{"open": "a", "channel": 1, "from": 5}', "`from` is a checkpoint"),
        ('{"open": "a", "channel": 1, "credit": -1}', "`from` is a checkpoint"),
        ('{"open": "a", "channel": 1, "credit": 1%s}' % ("0" * 400), "`from` is a checkpoint"),
        (b"bytes", "messages to the node are JSON"),
    ],
)
@pytest.mark.parametrize("compression", ["deflate", None])
def test_a_message_that_makes_no_sense_ends_the_connection_with_the_reason(
    message: str | bytes, why: str, compression: str | None
) -> None:
    with (
        web(config(request_bytes_max=20_000)) as node,
        Channels(node, compression=compression) as one,
    ):
        one.socket.send(message)
        assert why in one.reason()


def test_what_a_client_has_no_credit_for_waits_in_the_journal(node: Web) -> None:
    count, size = 40, 2_000
    with Channels(node, compression=None) as one, connect_sync(node.node.urls[0]) as session:
        one.open(1, "a", credit=10_000)
        for number in range(count):
            session.publish("a", f"{number}:".encode().ljust(size, b"x"))
        got: list[int] = []
        taken = 0
        while len(got) < count:
            _, found = one.next()
            if found["type"] == "event":
                got.append(int(found["payload"].partition(":")[0]))
                continue
            assert found["type"] == "mark"
            if len(got) >= 4 and not taken:
                # four events and a bit: the node waits, and another channel does not
                assert node.http.tunnels.counts()["blocked"] == 1
                one.open(2, "b")
                node.post("/b", "beside")
                assert one.next()[1]["payload"] == "beside"
            taken += found["bytes"]
            one.say(taken=found["bytes"], channel=1)
        assert got == list(range(count))
        assert taken >= (count - 5) * size


def test_credit_counts_on_the_topic_of_the_address_too(node: Web) -> None:
    with (
        Channels(node, "?topic=a&format=binary&credit=4000") as one,
        connect_sync(node.node.urls[0]) as session,
    ):
        one.next()
        for number in range(6):
            session.publish("a", bytes([number]) * 2_000)
        batches, marks = 0, 0
        while batches < 6:
            at, found = one.next()
            assert at == 0
            if found["type"] == "mark":
                marks += 1
                one.say(taken=found["bytes"], channel=0)
            else:
                batches += 1
        assert marks >= 2


def test_messages_are_compressed_for_clients_that_offer_it_and_small_ones_are_not(node: Web) -> None:
    text = "the same words again and again " * 100
    for compression, is_compressed in (("deflate", True), (None, False)):
        with Channels(node, "?topic=a", compression=compression) as one:
            assert bool(one.socket.protocol.extensions) is is_compressed
            assert one.next()[1]["state"] == "live"
            node.post("/a", text)
            node.post("/a", "small")
            assert [one.next()[1]["payload"] for _ in range(2)] == [text, "small"]
    with web(config(compress=False)) as other, Channels(other, "?topic=a") as one:
        assert not one.socket.protocol.extensions


def test_a_few_bytes_that_unpack_to_very_many_are_refused() -> None:
    with web(config(request_bytes_max=10_000)) as node, Channels(node) as one:
        one.socket.send('{"open":"' + "a" * 5_000_000)
        with pytest.raises(ConnectionClosed):
            one.next()


def test_a_tunnel_that_can_not_be_written_is_closed_and_the_others_get_the_event(
    node: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = Channel.write

    def fails(self: Channel, data: bytes, size: int = 0) -> None:
        if self.number == 5:
            raise OverflowError("integer division result too large for a float")
        write(self, data, size)

    monkeypatch.setattr(Channel, "write", fails)
    with Channels(node) as bad, Channels(node) as good:
        bad.open(5, "a/**")
        good.open(1, "a/**")
        assert node.post("/a/b", "hi").code == 200
        assert good.next()[1]["payload"] == "hi"
        assert bad.next()[1]["type"] == "closed"
    assert "the tunnel of 127.0.0.1 is closed" in caplog.text


def test_a_connection_without_a_channel_is_not_kept(node: Web) -> None:
    def pass_time() -> None:
        loop, connections = node.http._services.loop, node.http._connections
        loop.call_soon_threadsafe(lambda: connections.close_overdue(loop.time() + 1_000, 10))

    with Channels(node) as one:
        one.open(1, "a")
        pass_time()
        node.post("/a", "x")
        assert one.next()[1]["payload"] == "x"
        one.say(close=1)
        while len(node.http.tunnels):
            time.sleep(0.01)
        pass_time()
        assert one.reason() == "no channel was opened"
