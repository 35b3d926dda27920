"""The message router: each message goes to the part of the session that it concerns."""

from __future__ import annotations

import logging

import pytest

from reknit.batch import Batch
from reknit.client.message_router import MessageRouter
from reknit.config import Config
from reknit.errors import LocalError, Refused
from reknit.protocol.publish import publisher as publishing
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.wire.codec import Frames
from reknit.wire.messages import Ack, Deliver, Go, Hold, Settled, Welcome
from reknit.wire.outcomes import PathThere, Told
from reknit.wire.streams import Abort, Piece, Room

ONE, TWO = b"1" * 16, b"2" * 16


class Part:
    """A publisher, a subscription and a stream at once: it remembers what it got."""

    def __init__(self, source: bytes = ONE, sub: int = 1) -> None:
        self.source, self.sub = source, sub
        self.got: list[object] = []

    def receive(self, message: object) -> None:
        self.got.append(message)

    def receive_piece(self, message: Piece | Abort) -> None:
        self.got.append(message)

    def lost(self) -> None:
        self.got.append("lost")

    async def abort(self) -> None: ...

    async def flush(self) -> None: ...

    def fail(self, error: LocalError | Refused) -> None: ...

    def is_heard(self) -> bool:
        return False


@pytest.fixture
def router() -> MessageRouter:
    """Of a session that is not connected."""
    return MessageRouter("tcp://127.0.0.1:1", "test", Config())


def test_messages_about_a_source_go_to_its_publisher(router: MessageRouter) -> None:
    one, two = Part(ONE), Part(TWO)
    router.add_publisher(one)
    router.add_publisher(two)
    router.received([Ack(ONE, 1), Ack(TWO, 2), Ack(b"3" * 16, 3)])
    assert (one.got, two.got) == ([Ack(ONE, 1)], [Ack(TWO, 2)])
    router.remove_publisher(one)
    router.received([Ack(ONE, 4)])
    assert one.got == [Ack(ONE, 1)]


def test_a_publisher_whose_source_becomes_known_is_found_under_it(router: MessageRouter) -> None:
    class Renamed(Part):
        def receive(self, message: object) -> None:
            super().receive(message)
            self.source = TWO

    part, outcomes = Renamed(ONE), list[object]()
    router.add_publisher(part, outcomes.append)
    router.connected(Welcome(1, "node", "epoch", 1.0, 1 << 20))
    router.received([Ack(TWO, 1), Ack(ONE, 2), Told(TWO, [])])
    assert part.got == [publishing.Connected("epoch"), Ack(TWO, 1)]
    assert outcomes == [Told(TWO, [])]
    router.remove_publisher(part)
    assert not router.publishers


def test_only_publishers_that_were_held_are_released(router: MessageRouter) -> None:
    one, two = Part(ONE), Part(TWO)
    router.add_publisher(one)
    router.add_publisher(two)
    hold = Hold(8, "full", [TWO])
    router.received([hold, Go(), Go()])
    assert (one.got, two.got) == ([], [hold, Go()])


def test_a_delivery_is_passed_on_as_it_comes_and_ends_with_its_position(router: MessageRouter) -> None:
    part = Part(sub=7)
    router.add_subscription(part)
    batches = [Batch.build(ONE, "plant/temp", first, [b"x"], time_us=0) for first in (1, 2)]
    frames = [Frames(bytes(batch.data), [batch.head]) for batch in batches]
    router.received([Deliver(7, sum(len(one.data) for one in frames), 42, attempt=2), *frames])
    got = [one for one in part.got if isinstance(one, subscribing.Delivered)]
    assert [(one.batches[0].first, one.position, one.attempt) for one in got] == [(1, -1, 2), (2, 42, 2)]


def test_batches_that_were_not_announced_are_dropped(
    router: MessageRouter, caplog: pytest.LogCaptureFixture
) -> None:
    part = Part()
    router.add_subscription(part)
    batch = Batch.build(ONE, "plant/temp", 1, [b"x"], time_us=0)
    router.received([Frames(bytes(batch.data), [batch.head])])
    assert part.got == []
    assert "not announced" in caplog.text


def test_outcomes_go_to_a_stream_or_to_who_listens_for_its_source(router: MessageRouter) -> None:
    stream, publisher = Part(), Part(TWO)
    outcomes: list[Told | PathThere] = []
    router.add_stream(ONE, stream)
    router.add_publisher(publisher, outcomes.append)
    router.received([Room(0, ONE, 9), Told(ONE, []), Told(TWO, []), PathThere(TWO, True), Room(0, TWO, 9)])
    assert stream.got == [Room(0, ONE, 9), Told(ONE, [])]
    assert outcomes == [Told(TWO, []), PathThere(TWO, True)]
    router.remove_publisher(publisher)
    router.received([Told(TWO, [])])
    assert len(outcomes) == 2


def test_everyone_hears_that_the_connection_came_or_went(router: MessageRouter) -> None:
    publisher, subscription, stream = Part(), Part(), Part()
    router.add_publisher(publisher)
    router.add_subscription(subscription)
    router.add_stream(ONE, stream)
    router.connected(Welcome(1, "node", "epoch", 1.0, 1 << 20))
    router.disconnected()
    assert publisher.got == [publishing.Connected("epoch"), publishing.Disconnected()]
    assert subscription.got == [subscribing.Connected("epoch"), subscribing.Disconnected()]
    assert stream.got == ["lost"]


def test_pieces_go_to_the_subscription_that_reads_the_stream(router: MessageRouter) -> None:
    part = Part(sub=3)
    router.add_subscription(part)
    piece = Piece(3, ONE, 0, b"x", False)
    router.received([piece, Piece(4, ONE, 0, b"x", False), Settled(3, 1)])
    assert part.got == [piece, Settled(3, 1)]


def test_an_unknown_message_is_ignored(router: MessageRouter, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "reknit.client"):
        router.received([Welcome(1, "node", "epoch", 1.0, 1 << 20)])
    assert "ignored" in caplog.text
