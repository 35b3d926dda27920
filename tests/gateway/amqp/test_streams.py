"""Messages that are forwarded while they are still arriving: between AMQP clients and clients of our own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.session import Session, connect
from reknit.config import AnycastSettings, Config, TopicSettings
from reknit.errors import Aborted, Released
from reknit.event import Event
from reknit.gateway.amqp.codec.bodies import BYTES, SECTION, TEXT, BodyIn, BodyOut
from reknit.gateway.amqp.codec.encoding import MalformedValue
from reknit.gateway.amqp.codec.messages import decode_message, decode_start
from reknit.node.node import Node
from reknit.outcome import Outcome
from reknit.topic import Pattern
from tests.gateway.amqp.clients import WAIT_S, Client, amqp_of, broker, config, say, url_of

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

TOPICS = (TopicSettings(pattern=Pattern("films/**"), distribution="balanced"),)
TOPIC = "films/new"
CAP = 1 << 20
BODY = bytes(range(256)) * 20_000
LONG = bytes(range(256)) * 64_000


@pytest.fixture
def node() -> Iterator[Node]:
    made = config(topics=TOPICS)
    settings = {name: getattr(made, name) for name in ("node", "journal", "amqp", "topics")}
    with broker(Config(**settings, anycast=AnycastSettings(streams_held_bytes_max=CAP))) as one:
        yield one


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client(url_of(node)) as one:
        yield one


class Native:
    """A client of our own, on its own event loop."""

    def __init__(self, node: Node) -> None:
        self._thread = LoopThread()
        self.session: Session = self.run(connect(node.urls[0]).open())
        self.read: list[bytes] = []
        self.errors: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.begun = threading.Event()
        self._task: asyncio.Future[None] | None = None

    def run(self, work: Awaitable[Any]) -> Any:
        return self._thread.run(work)  # type: ignore[arg-type]

    def subscribe(self, react: str = "accept") -> None:
        """Take streams from now on. With `release`, the first one is released when a part of it was read."""
        make = partial(self.session.subscribe, "films/**", auto_accept=False, streams=True)
        self._events = self._thread.call(make)
        self.run(self._events.__aenter__())
        self._task = self._thread.call(lambda: asyncio.ensure_future(self._take(react)))

    async def _take(self, react: str) -> None:
        async for event in self._events:
            self.headers.append(event.headers)
            await self._one(event, react)

    async def _one(self, event: Event, react: str) -> None:
        parts: list[bytes] = []
        try:
            async for piece in event.pieces():
                parts.append(piece)
                self.begun.set()
                if react == "release":
                    event.release()
                    return
        except Aborted as error:
            self.errors.append(error.text)
        else:
            self.read.append(b"".join(parts))
            event.accept()

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what} did not come"
            time.sleep(0.01)

    def publish(self, body: bytes, **how: Any) -> Outcome | None:
        async def send() -> Outcome | None:
            async with self.session.publisher(TOPIC, resend_released=True).stream(**how) as out:
                for at in range(0, len(body), 100_000):
                    await out.write(body[at : at + 100_000])
            return out.outcome

        outcome: Outcome | None = self.run(send())
        return outcome

    def close(self) -> None:
        if self._task is not None:
            self._thread.call(self._task.cancel)
        self.run(self.session.close())
        self._thread.stop()


@pytest.fixture
def native(node: Node) -> Iterator[Native]:
    made = Native(node)
    try:
        yield made
    finally:
        made.close()


def begin_stream(client: Client, data: bytes) -> tuple[Any, Any]:
    """The beginning of a message, sent without the rest."""
    sender = client.sender(TOPIC, resend=True)
    client.wait(lambda: sender.link.credit > 0, "credit")
    delivery = client.call(lambda: sender.link.delivery(sender.link.delivery_tag()))
    sent = client.call(lambda: client.track(delivery))
    for at in range(0, len(data), 1 << 16):
        client.call(partial(sender.link.stream, data[at : at + (1 << 16)]))
    return sender, sent


def is_idle(node: Node) -> bool:
    status = node.anycast.streams.status()
    return node.anycast.machine.records() == 0 and not any(status.values())


def test_a_long_message_reaches_a_native_reader_before_its_end(
    node: Node, client: Client, native: Native
) -> None:
    native.subscribe()
    data = bytes(proton.Message(body=BODY, subject="reel", properties={"part": 1}).encode())
    sender, sent = begin_stream(client, data[:3_000_000])
    native.wait(native.begun.is_set, "the first piece")
    assert not sent.is_settled
    client.call(partial(sender.link.stream, data[3_000_000:]))
    client.call(sender.link.advance)
    assert sent.outcome == "accepted"
    assert native.read == [BODY]
    assert native.headers == [{"subject": "reel", "part": "1"}]
    native.wait(lambda: is_idle(node), "the end")
    assert amqp_of(node).status()["unsettled_in"] == 0


def test_a_message_longer_than_memory_may_hold_goes_from_client_to_client(node: Node, client: Client) -> None:
    receivers = [client.receiver(TOPIC, "accept", name=f"r{number}") for number in range(2)]
    most = 0

    def watch() -> bool:
        nonlocal most
        most = max(most, node.anycast.streams.buffer.held_bytes)
        return bool(sent.is_settled)

    sender = client.sender(TOPIC, resend=True)
    sent = sender.stream(proton.Message(body=LONG), 1 << 16)
    client.wait(watch, "an outcome")
    assert sent.states[-1] == "accepted"
    assert [body for one in receivers for body in one.bodies] == [LONG]
    assert most <= CAP
    assert sender.send(b"short").outcome == "accepted", "the link continues"


@pytest.mark.parametrize("body", ["text" * 500_000, b"bytes" * 400_000])
def test_the_kind_of_body_stays(client: Client, body: Any) -> None:
    receiver = client.receiver(TOPIC, "accept")
    message = proton.Message(body=body, id="m1", content_type="text/plain", properties={"k": "v"})
    assert client.sender(TOPIC).stream(message, 1 << 16).outcome == "accepted"
    assert receiver.bodies == [body]
    [got] = receiver.messages
    assert (got.id, got.content_type, got.properties) == ("m1", "text/plain", {"k": "v"})


def test_what_a_native_reader_releases_goes_whole_to_an_amqp_client(
    node: Node, client: Client, native: Native
) -> None:
    native.subscribe("release")
    receiver = client.receiver(TOPIC, "accept")
    sent = client.sender(TOPIC, resend=True).stream(proton.Message(body=BODY), 1 << 16)
    assert sent.outcome == "accepted"
    assert receiver.bodies == [BODY]
    native.wait(lambda: is_idle(node), "the end")


def test_a_native_stream_of_known_size_reaches_an_amqp_client(client: Client, native: Native) -> None:
    receiver = client.receiver("films/**", "accept")
    assert native.publish(LONG, size=len(LONG), headers={"subject": "reel"}) is Outcome.ACCEPTED
    assert receiver.bodies == [LONG]
    assert receiver.messages[0].subject == "reel"


def test_one_whose_size_nobody_said_is_held_until_its_end_or_goes_to_another(
    client: Client, native: Native, node: Node
) -> None:
    receiver = client.receiver(TOPIC, "accept")
    assert native.publish(BODY) is Outcome.ACCEPTED
    assert receiver.bodies == [BODY]
    with pytest.raises(Released, match="there is no subscriber"):
        native.publish(LONG)
    native.subscribe()
    assert native.publish(LONG) is Outcome.ACCEPTED
    assert native.read == [LONG]
    native.wait(lambda: is_idle(node), "the end")


@pytest.mark.parametrize("how", ["abort", "detach", "cut"])
def test_a_sender_that_gives_up_midway_leaves_no_half(node: Node, native: Native, how: str) -> None:
    native.subscribe()
    with Client(url_of(node)) as client:
        data = bytes(proton.Message(body=BODY).encode())
        sender, sent = begin_stream(client, data[:3_000_000])
        native.wait(native.begun.is_set, "the first piece")
        if how == "abort":
            client.call(sent.delivery.abort)
        elif how == "detach":
            client.call(sender.link.close)
        else:
            client.cut()
        native.wait(lambda: len(native.errors) == 1, "the word that it was aborted")
    assert native.read == []
    native.wait(lambda: is_idle(node), "the end")


def test_an_amqp_client_forgets_a_message_that_was_aborted(node: Node, client: Client) -> None:
    receiver = client.receiver(TOPIC, "accept")
    data = bytes(proton.Message(body=BODY).encode())
    sender, sent = begin_stream(client, data[:3_000_000])
    client.wait(lambda: receiver.link.current is not None, "the beginning")
    client.call(sent.delivery.abort)
    assert sender.send(b"next").outcome == "accepted"
    assert receiver.bodies == [b"next"]


def test_a_receiver_that_releases_midway_lets_the_next_have_it(node: Node, client: Client) -> None:
    class Releasing(Client):
        def on_delivery(self, event: Any) -> None:
            if event.delivery.link.is_receiver and event.delivery.partial and event.delivery.readable:
                event.delivery.link.recv(1 << 16)
                say(event.delivery, "release")
            super().on_delivery(event)

    with Releasing(url_of(node)) as other:
        impatient = other.receiver(TOPIC, "accept", name="impatient")
        patient = client.receiver(TOPIC, "accept", name="patient")
        sent = client.sender(TOPIC, resend=True).stream(proton.Message(body=BODY), 1 << 16)
        assert sent.outcome == "accepted"
        assert (impatient.bodies, patient.bodies) == ([], [BODY])


def test_what_turns_out_to_be_no_message_is_rejected_and_nobody_has_it(
    node: Node, client: Client, native: Native
) -> None:
    native.subscribe()
    data = bytes(proton.Message(body=BODY).encode())
    sender, sent = begin_stream(client, data[:3_000_000])
    client.call(sender.link.advance)
    assert sent.outcome == "rejected"
    assert sent.condition.name == "amqp:decode-error"
    native.wait(lambda: len(native.errors) == 1, "the word that it was aborted")
    assert native.read == []


# -- bodies


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[low:high] for low, high in pairwise(at)]


@given(
    sections=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    places=st.lists(st.integers(0, 2000), max_size=8),
    has_footer=st.booleans(),
)
def test_a_body_in_sections_is_read_wherever_it_is_cut(
    sections: list[bytes], places: list[int], has_footer: bool
) -> None:
    heads = [b"\x00\x53\x75\xb0" + len(one).to_bytes(4, "big") for one in sections]
    data = b"".join(head + one for head, one in zip(heads, sections, strict=True))
    data += b"\x00\x53\x78\xc1\x01\x00" if has_footer else b""
    begun = decode_start(data)
    assert begun is not None
    body = BodyIn(begun.meta[0], begun.size)
    got = b"".join(body.feed(part) for part in cut(data[begun.payload_at :], places))
    body.finish()
    assert got == b"".join(sections)


@given(
    kind=st.sampled_from([TEXT, BYTES, SECTION]),
    payload=st.text(max_size=300),
    places=st.lists(st.integers(0, 2000), max_size=8),
)
def test_a_body_is_written_wherever_it_is_cut(kind: int, payload: str, places: list[int]) -> None:
    data = payload.encode()
    out = BodyOut(kind, len(data))
    parts = [*cut(data, places), b""]
    made = b"".join(out.feed(part, at == len(parts) - 1) for at, part in enumerate(parts))
    taken = decode_message(made)
    assert (taken.payload, taken.meta[0]) == (data, kind)


@pytest.mark.parametrize(
    ("kind", "size", "data", "why"),
    [
        (BYTES, 5, b"abc", "ends 2 bytes before"),
        (BYTES, 2, b"ab\x00\x53\x75\xa0\x01c", "section 0x75 after the body"),
        (SECTION, 2, b"ab\x00\x53\x77\xa0\x01c", "section 0x77 after the body"),
        (TEXT, 2, b"a\xff", "not UTF-8"),
        (SECTION, 0, bytes(70_000), "too many bytes after"),
    ],
)
def test_a_body_that_is_none_is_found_out(kind: int, size: int, data: bytes, why: str) -> None:
    body = BodyIn(kind, size)

    def read() -> None:
        body.feed(data)
        body.finish()

    with pytest.raises(MalformedValue, match=why):
        read()


def test_a_size_that_was_wrong_is_found_out() -> None:
    with pytest.raises(MalformedValue, match="before its size"):
        BodyOut(BYTES, 3).feed(b"ab", is_last=True)
    with pytest.raises(MalformedValue, match="longer"):
        BodyOut(SECTION, 1, is_strict=True).feed(b"ab", is_last=False)


def test_a_stream_that_nobody_reads_does_not_hold_up_other_links_of_its_session(
    node: Node, client: Client
) -> None:
    """Proton's client reads a message when all of it is there, which this session has no room for."""
    with Client(url_of(node)) as reader:

        def narrow() -> Any:
            session = reader.connection.session()
            session.incoming_capacity = 1 << 19
            session.open()
            return session

        session = reader.call(narrow)
        reader.receiver(TOPIC, "accept", context=session)
        others = reader.receiver("plant/temp", "accept", context=session)
        sent = client.sender(TOPIC, resend=True)
        sent.stream(proton.Message(body=BODY), 1 << 16)
        reader.wait(lambda: session.incoming_bytes > 1 << 17, "the beginning of the stream")
        sender = client.sender("plant/temp")
        for count in range(1, 21):
            assert sender.send(b"x" * 20_000).outcome == "accepted"
            others.wait(count)
        assert session.incoming_bytes <= 1 << 18, "half of the window is left"
