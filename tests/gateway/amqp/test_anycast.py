"""Messages to one of many receivers: their dispositions, and the outcome that the sender gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reknit.config import TopicSettings
from reknit.node.node import Node
from reknit.topic import Pattern
from tests.gateway.amqp.clients import Client, amqp_of, broker, config, say, url_of

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
reactor = pytest.importorskip("proton.reactor")

TOPICS = (
    TopicSettings(pattern=Pattern("closest/**"), distribution="closest"),
    TopicSettings(pattern=Pattern("balanced/**"), distribution="balanced"),
    TopicSettings(pattern=Pattern("multicast/**"), distribution="multicast"),
)


@pytest.fixture
def node() -> Iterator[Node]:
    with broker(config(topics=TOPICS)) as one:
        yield one


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client(url_of(node)) as one:
        yield one


def receivers(client: Client, address: str, *reactions: str) -> list[Any]:
    return [client.receiver(address, react, name=f"r{number}") for number, react in enumerate(reactions)]


def counts(found: list[Any]) -> list[int]:
    return [len(receiver.messages) for receiver in found]


@pytest.mark.parametrize("topic", ["closest/a", "balanced/a"])
def test_a_released_message_tries_the_next_receiver(client: Client, topic: str) -> None:
    found = receivers(client, topic, "release", "release", "accept")
    sender = client.sender(topic, resend=True)
    sent = [sender.send(b"%d" % number) for number in range(6)]
    assert [one.outcome for one in sent] == ["accepted"] * 6
    assert len(found[2].messages) == 6
    assert max(counts(found)) <= 6, "each receiver is tried at most once for a message"


def test_without_the_flag_a_release_goes_back_to_the_sender(client: Client) -> None:
    found = receivers(client, "closest/a", "release", "release", "release")
    assert client.sender("closest/a").send(b"x").outcome == "released"
    assert sum(counts(found)) == 1


def test_when_all_release_the_sender_hears_it_once_and_keeps_its_credit(client: Client) -> None:
    found = receivers(client, "closest/a", "release", "release", "release")
    sender = client.sender("closest/a", resend=True)
    sent = sender.send_many([b"1", b"2", b"3"])
    assert [one.outcome for one in sent] == ["released"] * 3
    assert [one.states for one in sent] == [["released"]] * 3
    assert counts(found) == [3, 3, 3]
    client.wait(lambda: sender.link.credit > 0, "credit")


def test_after_received_a_release_is_not_resent(client: Client) -> None:
    def first_received_then_released(message: Any, delivery: Any) -> None:
        say(delivery, "received")

    one = client.receiver("closest/a", first_received_then_released, name="one")
    sent = client.sender("closest/a", resend=True).send(b"x")
    one.wait(1)
    client.wait(lambda: "received" in sent.states, "the word that somebody is at it")
    other = client.receiver("closest/a", "accept", name="other")
    one.say(0, "release")
    assert sent.outcome == "released"
    assert other.messages == []


@pytest.mark.parametrize(("react", "outcome"), [("reject", "rejected"), ("modify", "modified")])
def test_rejected_and_modified_go_back_and_not_on(client: Client, react: str, outcome: str) -> None:
    found = receivers(client, "closest/a", react, react)
    sent = client.sender("closest/a", resend=True).send(b"x")
    assert sent.outcome == outcome
    assert sum(counts(found)) == 1


@pytest.mark.parametrize("name", ["amqp:not-found", "amqp:not-allowed", "app:bad", "com.example:order:odd"])
def test_a_rejection_brings_its_condition_back(client: Client, name: str) -> None:
    def reject(message: Any, delivery: Any) -> None:
        delivery.local.condition = proton.Condition(name, "no: such order")
        delivery.update(proton.Delivery.REJECTED)
        delivery.settle()

    client.receiver("balanced/a", react=reject)
    sent = client.sender("balanced/a").send(b"x")
    assert sent.outcome == "rejected"
    assert (sent.condition.name, sent.condition.description) == (name, "no: such order")


@pytest.mark.parametrize(
    ("react", "fields"),
    [("modify", (True, False)), ("undeliverable", (False, True)), ("settle", (True, False))],
)
def test_modified_brings_its_fields_back(client: Client, react: str, fields: tuple[bool, bool]) -> None:
    receivers(client, "balanced/a", react)
    sent = client.sender("balanced/a").send(b"x")
    assert sent.outcome == "modified"
    assert sent.modified == fields


def test_receiver_is_called_by_its_container_and_link(node: Node) -> None:
    with Client(url_of(node), container_id="shop/7") as client:
        client.receiver("balanced/a", "hold", name="in")
        [path] = node.anycast.status()["paths"]
        assert path["path"] == "amqp/shop%2F7/in"


def test_message_sent_settled_goes_on_to_who_takes_it_and_is_counted_when_nobody_does(
    node: Node, client: Client
) -> None:
    sender = client.sender("closest/a", resend=True, options=[reactor.AtMostOnce()])
    first, second = receivers(client, "closest/a", "release", "accept")
    sender.send_many([b"1", b"2"])
    client.wait(lambda: len(second.messages) == 2, "both messages")
    assert amqp_of(node).status()["dropped_settled"] == 0
    second.close()
    sender.send(b"3")
    client.wait(lambda: amqp_of(node).status()["dropped_settled"] == 1, "the count")
    assert b"3" in first.bodies


@pytest.mark.parametrize(
    ("reactions", "outcome"),
    [
        (("release", "accept"), "accepted"),
        (("release", "release"), "released"),
        (("release", "modify"), "modified"),
        (("accept", "reject"), "rejected"),
    ],
)
def test_outcomes_of_a_multicast_join_and_the_flag_is_ignored(
    client: Client, reactions: tuple[str, str], outcome: str
) -> None:
    found = receivers(client, "multicast/a", *reactions)
    sent = client.sender("multicast/a", resend=True).send(b"x")
    assert sent.outcome == outcome
    assert counts(found) == [1, 1]


def test_a_receiver_that_releases_and_leaves_at_once_costs_nothing(node: Node, client: Client) -> None:
    acceptor = client.receiver("closest/a", "accept", credit=0)

    def release_and_leave(message: Any, delivery: Any) -> None:
        say(delivery, "release")
        delivery.link.close()

    sender = client.sender("closest/a", resend=True)
    for number in range(20):
        with Client(url_of(node)) as other:
            leaver = other.receiver("closest/a", release_and_leave, credit=1)
            client.wait(lambda: sender.link.credit > 0, "credit")
            sent = sender.send(b"%d" % number)
            leaver.wait(1)
            acceptor.flow(1)
            assert sent.outcome == "accepted"
    assert len(acceptor.messages) == 20


def test_a_message_in_doubt_is_modified_never_released(node: Node, client: Client) -> None:
    with Client(url_of(node)) as other:
        holder = other.receiver("closest/a", "hold")
        sender = client.sender("closest/a", resend=True)
        sent = sender.send(b"x")
        holder.wait(1)
        other.cut()
    assert sent.outcome == "modified"
    assert sent.modified == (True, False)


def test_messages_that_wait_for_credit_go_to_another_when_their_receiver_leaves(
    node: Node, client: Client
) -> None:
    with Client(url_of(node)) as other:
        stuck = other.receiver("balanced/a", "hold", credit=1)
        sender = client.sender("balanced/a", resend=True)
        sent = sender.send_many([b"%d" % number for number in range(5)])
        stuck.wait(1)
        acceptor = client.receiver("balanced/a", "accept")
        acceptor.wait(4)
        other.cut()
    assert [one.outcome for one in sent].count("accepted") == 4
    assert [one.outcome for one in sent].count("modified") == 1


def test_re_forwards_leave_nothing_unsettled(client: Client) -> None:
    releaser, acceptor = receivers(client, "closest/a", "release", "accept")
    releaser.flow(1_000)
    acceptor.flow(1_000)
    sender = client.sender("closest/a", resend=True)
    sent = sender.send_many([b"x"] * 300)
    assert {one.outcome for one in sent} == {"accepted"}
    assert len(acceptor.messages) == 300
    client.wait(lambda: releaser.link.unsettled == 0, "settlement")


def test_a_stream_that_is_released_twice_arrives_whole(client: Client) -> None:
    found = receivers(client, "closest/film", "release", "release", "accept")
    body = bytes(range(256)) * 20_000
    sent = client.sender("closest/film", resend=True).stream(proton.Message(body=body), 65_536)
    assert sent.outcome == "accepted"
    assert found[2].bodies == [body]


def test_a_sender_has_no_credit_while_nobody_is_there(client: Client) -> None:
    sender = client.sender("closest/a")
    assert sender.credit == 0
    receiver = client.receiver("closest/a")
    client.wait(lambda: sender.link.credit > 0, "credit")
    assert sender.send(b"x").outcome == "accepted"
    assert receiver.bodies == [b"x"]


@pytest.mark.parametrize("topic", ["closest/a", "balanced/a"])
def test_a_burst_is_shared_message_by_message(client: Client, topic: str) -> None:
    found = receivers(client, topic, "hold", "hold")
    client.sender(topic).send_many([b"x"] * 100)
    for receiver in found:
        receiver.wait(50)
    assert counts(found) == [50, 50]


def test_no_receiver_is_given_more_than_its_credit(client: Client) -> None:
    found = [client.receiver("balanced/a", "hold", credit=3, name=f"r{number}") for number in range(2)]
    client.sender("balanced/a").send_many([b"x"] * 10)
    for receiver in found:
        receiver.wait(3)
    found[0].flow(4)
    found[0].wait(7)
    assert counts(found) == [7, 3]


def test_drain_gives_back_what_nothing_is_there_for(client: Client) -> None:
    receiver = client.receiver("balanced/a", credit=0)
    client.call(lambda: receiver.link.drain(5))
    client.wait(lambda: receiver.link.credit == 0, "the drained credit")
    assert receiver.messages == []


def test_one_receiver_with_little_credit_gets_messages_in_order(client: Client) -> None:
    def accept_and_want_one_more(message: Any, delivery: Any) -> None:
        say(delivery, "accept")
        delivery.link.flow(1)

    receiver = client.receiver("balanced/a", accept_and_want_one_more, credit=7)
    client.sender("balanced/a").send_many([b"%d" % number for number in range(500)])
    assert receiver.wait(500) == [b"%d" % number for number in range(500)]
