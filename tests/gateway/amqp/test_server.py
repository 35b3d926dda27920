"""AMQP clients on topics with the distribution `journal`: messages, outcomes and credit."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reknit.client.blocking.session import SyncSession, connect_sync
from reknit.config import Config, LimitSettings
from reknit.dead_letter import read_letter
from reknit.node.node import Node
from reknit.outcome import Code
from tests.gateway.amqp.clients import WAIT_S, Client, amqp_of, broker, config, say, url_of

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
reactor = pytest.importorskip("proton.reactor")


@pytest.fixture
def node() -> Iterator[Node]:
    with broker() as one:
        yield one


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client(url_of(node)) as one:
        yield one


@contextlib.contextmanager
def native(node: Node) -> Iterator[SyncSession]:
    with connect_sync(node.urls[0]) as session:
        yield session


def test_a_message_is_accepted_and_received(client: Client) -> None:
    receiver = client.receiver("plant/temp")
    sent = client.sender("plant/temp").send(b"21.5")
    assert sent.outcome == "accepted"
    assert receiver.wait(1) == [b"21.5"]


def test_what_is_held_for_a_client_is_in_the_budget_of_peers(node: Node, client: Client) -> None:
    receiver, server = client.receiver("plant/temp"), amqp_of(node)
    assert client.sender("plant/temp").send(b"21.5").outcome == "accepted"
    receiver.wait(1)
    [connection] = server.connections
    assert (connection.waiting_bytes, server._budgeted()) == (0, [])
    connection._intake.assemble(1_000)
    [budgeted] = server._budgeted()
    assert (budgeted.held_bytes, budgeted.is_leaving, budgeted.is_anonymous) == (1_000, False, False)
    assert server._budgeted in node.peers.clients


def test_every_receiver_of_a_topic_gets_every_message(client: Client) -> None:
    receivers = [client.receiver("plant/temp", name=f"r{number}") for number in range(3)]
    client.sender("plant/temp").send_many([b"1", b"2"])
    assert [receiver.wait(2) for receiver in receivers] == [[b"1", b"2"]] * 3


def test_a_pattern_receives_from_every_topic_that_matches(client: Client) -> None:
    receiver = client.receiver("plant/*/temp")
    for line in "ab":
        client.sender(f"plant/{line}/temp").send(line)
    client.sender("plant/a/speed").send("no")
    client.sender("plant/c/temp").send("c")
    assert sorted(receiver.wait(3)) == ["a", "b", "c"]
    topics = {one.annotations[proton.symbol("x-opt-reknit-topic")] for one in receiver.messages}
    assert topics == {"plant/a/temp", "plant/b/temp", "plant/c/temp"}


@pytest.mark.parametrize(
    "body",
    [b"bytes", "text", None, 7, {"map": [1, True, None]}, ["list", 1.5], b"", "", "x" * 300, b"y" * 300],
)
def test_a_body_arrives_as_it_was_sent(client: Client, body: Any) -> None:
    receiver = client.receiver("plant/temp")
    client.sender("plant/temp").send(body)
    assert receiver.wait(1) == [body]


def test_properties_arrive_as_they_were_sent(client: Client) -> None:
    receiver = client.receiver("plant/temp")
    message = proton.Message(
        id=UUID(int=7), subject="hot", content_type="text/plain", reply_to="plant/answers", correlation_id="c1",
        user_id=b"ann", group_id="g", properties={"line": 3, "is_hot": True, "ratio": 0.5, "name": "x"},
        annotations={proton.symbol("x-opt-a"): 1}, durable=True, priority=7, ttl=60, body=b"x", inferred=True,
    )  # fmt: skip
    client.sender("plant/temp").send(message)
    receiver.wait(1)
    got = receiver.messages[0]
    for name in ("id", "subject", "content_type", "reply_to", "correlation_id", "user_id", "group_id", "properties",
                 "annotations", "durable", "priority", "inferred"):  # fmt: skip
        assert getattr(got, name) == getattr(message, name), name
    assert 0 < got.ttl <= 60


def test_a_native_subscriber_sees_properties_as_headers(node: Node, client: Client) -> None:
    with native(node) as session, session.subscribe("plant/temp") as events:
        properties = {"line": 3, "subject": "of its own"}
        client.sender("plant/temp").send(b"21.5", subject="hot", id="m1", properties=properties)
        event = next(events)
        assert event.payload == b"21.5"
        assert event.headers == {
            "subject": "hot",
            "message-id": "m1",
            "line": "3",
            "app-subject": "of its own",
        }


def test_a_native_event_is_a_message_with_data(node: Node, client: Client) -> None:
    receiver = client.receiver("plant/temp")
    with native(node) as session:
        session.publish("plant/temp", b"21.5")
    assert receiver.wait(1) == [b"21.5"]
    assert receiver.messages[0].inferred
    assert receiver.messages[0].durable


def test_a_delivery_is_tagged_with_the_event_id(node: Node, client: Client) -> None:
    receiver = client.receiver("plant/temp")
    with native(node) as session, session.subscribe("plant/temp") as events:
        client.sender("plant/temp").send(b"x")
        event = next(events)
    receiver.wait(1)
    tag = receiver.deliveries[0].tag
    assert urlsafe_b64decode(tag[:22] + "==") == event.source
    assert int(tag[22:], 16) == event.seq


def test_presettled_messages_arrive(client: Client) -> None:
    receiver = client.receiver("plant/temp")
    sender = client.sender("plant/temp", options=[reactor.AtMostOnce()])
    sender.send_many([b"1", b"2", b"3"])
    assert receiver.wait(3) == [b"1", b"2", b"3"]


def test_a_receiver_may_want_messages_settled(client: Client) -> None:
    receiver = client.receiver("plant/temp", react="hold", options=[reactor.AtMostOnce()])
    client.sender("plant/temp").send_many([b"1", b"2"])
    receiver.wait(2)
    assert [delivery.settled for delivery in receiver.deliveries] == [True, True]


def test_nothing_is_sent_beyond_the_credit(client: Client) -> None:
    receiver = client.receiver("plant/temp", credit=2)
    client.sender("plant/temp").send_many([b"%d" % number for number in range(10)])
    assert receiver.wait(2) == [b"0", b"1"]
    receiver.flow(3)
    assert receiver.wait(5)[2:] == [b"2", b"3", b"4"]
    receiver.flow(100)
    assert len(receiver.wait(10)) == 10


def test_large_batches_come_piece_by_piece_to_a_receiver_with_little_credit(
    node: Node, client: Client
) -> None:
    def accept_and_want_one_more(message: Any, delivery: Any) -> None:
        say(delivery, "accept")
        delivery.link.flow(1)

    receiver = client.receiver("plant/temp", accept_and_want_one_more, credit=5)
    with native(node) as session:
        for first in range(0, 2_000, 500):
            session.publish_many("plant/temp", [b"%d" % number for number in range(first, first + 500)])
    assert receiver.wait(2_000) == [b"%d" % number for number in range(2_000)]


def test_drain_sends_what_there_is_and_uses_up_the_rest(client: Client) -> None:
    receiver = client.receiver("plant/temp", credit=0)
    sent = client.sender("plant/temp").send_many([b"1", b"2"])
    assert {one.outcome for one in sent} == {"accepted"}
    client.call(lambda: receiver.link.drain(10))
    client.wait(lambda: receiver.link.credit == 0, "the drained credit")
    assert receiver.wait(2) == [b"1", b"2"]


def test_a_sender_gets_credit_back_as_its_messages_are_taken(client: Client) -> None:
    sender = client.sender("plant/temp")
    sent = sender.send_many([b"x"] * 2500)
    assert {one.outcome for one in sent} == {"accepted"}
    client.wait(lambda: sender.link.credit > Config().amqp.credit_events // 2, "credit")


def test_a_stream_in_many_frames_arrives_whole(client: Client) -> None:
    receiver = client.receiver("plant/film")
    body = bytes(range(256)) * 20_000
    sent = client.sender("plant/film").stream(proton.Message(body=body), 100_000)
    assert sent.outcome == "accepted"
    assert receiver.wait(1) == [body]


def test_a_message_that_is_taken_back_is_not_published(client: Client) -> None:
    receiver = client.receiver("plant/temp")
    sender = client.sender("plant/temp")

    def begin_and_abort() -> None:
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(bytes(proton.Message(body=b"z" * 100_000).encode())[:50_000])
        delivery.abort()

    client.call(begin_and_abort)
    sender.send(b"after")
    assert receiver.wait(1) == [b"after"]


def test_a_message_over_the_limit_ends_its_link_with_a_reason_and_nothing_else() -> None:
    with broker(config(message_bytes_max=10_000)) as node, Client(url_of(node)) as client:
        receiver = client.receiver("plant/temp")
        client.sender("plant/temp").stream(proton.Message(body=b"z" * 50_000), 5_000)
        client.wait(lambda: client.errors, "the error")
        name, text = client.errors[0]
        assert name == "amqp:link:message-size-exceeded"
        assert "amqp.message_bytes_max" in text
        client.sender("plant/temp", name="another").send(b"fine")
        assert receiver.wait(1) == [b"fine"]


def test_a_message_that_is_no_message_is_rejected(client: Client) -> None:
    sender = client.sender("plant/temp")

    def garble() -> Any:
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(b"\x00\x53\x77\xa1\x09cut")
        sender.link.advance()
        return client.track(delivery)

    sent = client.call(garble)
    assert sent.outcome == "rejected"
    assert sent.condition.name == "amqp:decode-error"
    assert sender.send(b"x").outcome == "accepted"


def test_an_address_that_is_no_topic_is_refused_with_a_reason(client: Client) -> None:
    client.sender("plant//temp")
    client.wait(lambda: client.errors, "the refusal")
    assert client.errors[0][0] == "amqp:invalid-field"
    assert "empty segment" in client.errors[0][1]


def test_a_reply_goes_to_the_address_that_was_made_for_it(node: Node, client: Client) -> None:
    replies = client.receiver(None, dynamic=True)
    assert replies.address.startswith("reply/")
    with Client(url_of(node)) as server:
        requests = server.receiver("orders/price")
        client.sender("orders/price").send("how much?", reply_to=replies.address, correlation_id=5)
        requests.wait(1)
        request = requests.messages[0]
        relay = server.sender(None)
        answer = proton.Message(body="12", address=request.reply_to, correlation_id=request.correlation_id)
        assert relay.send(answer).outcome == "accepted"
    assert replies.wait(1) == ["12"]
    assert replies.messages[0].correlation_id == 5


def test_a_message_without_a_usable_address_is_rejected(client: Client) -> None:
    sent = client.sender(None).send(proton.Message(body="x", address="a//b"))
    assert sent.outcome == "rejected"
    assert sent.condition.name == "amqp:invalid-field"


def test_a_durable_receiver_goes_on_where_it_was(tmp_path: Path) -> None:
    with broker(config(tmp_path)) as node:
        with Client(url_of(node), container_id="shop") as first:
            receiver = first.receiver("orders/new", durable=True, name="in", credit=2)
            first.sender("orders/new").send_many([b"1", b"2", b"3"])
            assert receiver.wait(2) == [b"1", b"2"]
            receiver.detach()
        with Client(url_of(node), container_id="shop") as second:
            again = second.receiver("orders/new", durable=True, name="in")
            assert again.wait(1) == [b"3"]


def test_what_a_durable_receiver_did_not_settle_comes_again() -> None:
    with broker() as node:
        with Client(url_of(node), container_id="shop") as first:
            receiver = first.receiver("orders/new", react="hold", durable=True, name="in")
            first.sender("orders/new").send_many([b"1", b"2"])
            receiver.wait(2)
            first.cut()
        with Client(url_of(node), container_id="shop") as second:
            again = second.receiver("orders/new", durable=True, name="in")
            assert again.wait(2) == [b"1", b"2"]


def test_closing_a_durable_link_ends_its_subscription(node: Node) -> None:
    with Client(url_of(node), container_id="shop") as client, native(node) as session:
        receiver = client.receiver("orders/new", durable=True, name="in")
        client.sender("orders/new").send(b"x")
        receiver.wait(1)
        assert [row["subscriber"] for row in session.ledger()] == ["amqp/shop/in"]
        receiver.close()
        deadline = time.monotonic() + WAIT_S
        while session.ledger():
            assert time.monotonic() < deadline, "the account is still there"


def test_outcomes_of_a_durable_receiver_are_in_the_ledger(node: Node) -> None:
    reactions = iter(["accept", "reject", "undeliverable"])
    with Client(url_of(node), container_id="shop") as client, native(node) as session:
        with session.subscribe("reknit/dead-letters") as letters:
            receiver = client.receiver(
                "orders/new", durable=True, name="in",
                react=lambda message, delivery: say(delivery, next(reactions)),
            )  # fmt: skip
            client.sender("orders/new").send_many([b"1", b"2", b"3"])
            receiver.wait(3)
            found = [read_letter(next(letters).payload) for _ in range(2)]
        assert [(one.reason, one.code, one.text) for one in found] == [
            ("rejected", Code.NOT_FOUND, "no such order"),
            ("rejected", Code.FAILED_PRECONDITION, "the receiver marked it as undeliverable here"),
        ]
        [row] = session.ledger()
        assert (row["subscriber"], row["accepted"], row["dead_lettered"]) == ("amqp/shop/in", 1, 2)


def test_a_released_or_failed_message_comes_again_with_its_count(client: Client) -> None:
    reactions = iter(["release", "modify", "settle", "accept"])
    receiver = client.receiver("plant/temp", react=lambda message, delivery: say(delivery, next(reactions)))
    client.sender("plant/temp").send(b"x")
    assert receiver.wait(4) == [b"x"] * 4
    assert receiver.messages[0].delivery_count == 0
    assert receiver.messages[2].delivery_count > 0
    assert receiver.messages[3].delivery_count > receiver.messages[2].delivery_count


def test_settled_messages_leave_nothing_behind(node: Node, client: Client) -> None:
    """Neither the engine nor the gateway remembers messages that are settled."""
    receiver = client.receiver("plant/temp", credit=5_000)
    sender = client.sender("plant/temp")
    sender.send_many([b"x"] * 2_000)
    receiver.wait(2_000)
    client.wait(lambda: receiver.link.unsettled == 0, "settlement")
    amqp = amqp_of(node)
    [connection] = amqp.connections
    client.wait(lambda: connection.unsettled == 0, "settlement")
    assert connection.intake_room == amqp.settings.intake_bytes_max


def test_closing_plain_receivers_forgets_them_and_logs_nothing(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        client.receiver("plant/temp").close()
    with native(node) as session:
        deadline = time.monotonic() + WAIT_S
        while session.status()["subscribers"]:
            assert time.monotonic() < deadline, "a receiver that was closed is remembered"
    assert not [one for one in caplog.records if one.name in ("reknit.client", "reknit.amqp")]


def test_senders_that_come_one_after_the_other_share_a_source(node: Node, client: Client) -> None:
    receiver = client.receiver("plant/temp")
    for number in range(10):
        sender = client.sender("plant/temp", name=f"s{number}")
        assert sender.send(b"%d" % number).outcome == "accepted"
        sender.close()
    assert receiver.wait(10) == [b"%d" % number for number in range(10)]
    assert len(node.journal.sources("plant/temp")) == 1


def test_what_the_node_will_never_take_is_rejected_with_the_reason() -> None:
    settings = dataclasses.replace(config(), limits=LimitSettings(sources_max=1))
    with broker(settings) as node, Client(url_of(node)) as client:
        assert client.sender("plant/temp").send(b"x").outcome == "accepted"
        sent = client.sender("plant/speed").send(b"x")
        assert sent.outcome == "rejected"
        assert sent.condition.name == "amqp:resource-limit-exceeded"
        assert "limits.sources_max" in sent.condition.description
