"""Bad input on the port: a clear refusal, logged once, and nobody else is affected."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import reknit
from reknit.batch import Batch
from reknit.frame import KIND_MESSAGE, KIND_RECORD, wrap
from reknit.outcome import Code
from reknit.processes.process import NodeProcess
from reknit.wire.codec import encode
from reknit.wire.messages import (
    VERSION,
    Ack,
    Answer,
    Ask,
    Credit,
    Declare,
    Deliver,
    Hello,
    Ping,
    Pong,
    Refuse,
    Settle,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from tests.real.raw import HELLO, RawConnection, raw

pytestmark = pytest.mark.real

SOURCE = b"s" * 16


def batch(
    topic: str = "a",
    first: int = 1,
    source: bytes = SOURCE,
    time_us: int = 1,
    columns: dict[str, list[Any]] | None = None,
) -> bytes:
    return bytes(Batch.build(source, topic, first, [b"x"], time_us, columns=columns).data)


def log_lines(node: NodeProcess, needle: str) -> list[str]:
    return [line for line in node.output().splitlines() if needle in line]


@contextmanager
def bystander(node: NodeProcess) -> Iterator[None]:
    """Another client publishes and receives all the while, and misses nothing."""
    done = threading.Event()
    got: list[bytes] = []
    sent: list[bytes] = []

    def work() -> None:
        with reknit.connect_sync(node.url) as session, session.subscribe("bystander") as events:
            while not done.is_set() or not sent:
                sent.append(b"%d" % len(sent))
                session.publish("bystander", sent[-1])
                got.append(next(events).payload)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(30)
    assert not thread.is_alive()
    assert got == sent


BROKEN = {
    "garbage": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "starts with the bytes 'RK'"),
    "kind": (b"RK\x09\x00" + struct.pack("<I", 64) + bytes(56), "kind 9 is unknown"),
    "short": (b"RK\x02\x00" + struct.pack("<I", 8), "can't have 8 bytes"),
    "odd": (b"RK\x02\x00" + struct.pack("<I", 33), "can't have 33 bytes"),
    "oversized": (b"RK\x01\x00" + struct.pack("<I", (16 << 20) + 8), "over the limit"),
    "checksum": (HELLO[:-1] + bytes([HELLO[-1] ^ 1]), "checksum"),
    "record": (HELLO + wrap(KIND_RECORD, b"x"), "journal record"),
    "not a message": (HELLO + wrap(KIND_MESSAGE, b"\xc1\xff"), "can't be read"),
    "seq": (HELLO + batch(first=2**64 - 1), "events from seq"),
    "time": (HELLO + batch(time_us=2**63), "year 9999"),
    "columns": (HELLO + batch(columns={"ttl": [1, 2]}), "has 2 values"),
    "column": (HELLO + batch(columns={"ttl": ["soon"]}), "must have numbers"),
    "batch checksum": (HELLO + batch()[:-1] + b"\x01", "checksum"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_frame_is_refused_with_words(node: NodeProcess, name: str) -> None:
    data, why = BROKEN[name]
    with bystander(node), raw(node.port, hello=False) as connection:
        connection.send(data)
        connection.read()
        assert connection.is_closed
        assert connection.bye is not None
        assert connection.bye.code == Code.INVALID_ARGUMENT
        assert why in connection.bye.text


def test_a_refusal_is_logged_once(node: NodeProcess) -> None:
    with raw(node.port, hello=False) as connection:
        host, port = connection._socket.getsockname()
        connection.send(b"garbage " * 1000)
        connection.read()
        connection.send(b"garbage " * 1000)
        with bystander(node):  # the node has read it by then
            pass
    assert len(log_lines(node, f"{host}:{port}")) == 1


def test_half_a_frame_is_waited_for_and_then_dropped(node: NodeProcess) -> None:
    with bystander(node), raw(node.port) as connection:
        connection.send(batch()[:40])
        connection.read(0.2)
        assert not connection.is_closed
        connection.half_close()
        connection.read()
        assert connection.is_closed
    with reknit.connect_sync(node.url) as session:
        assert "a" not in {row["topic"] for row in session.ask("topics")}


def test_a_read_that_stops_inside_a_frame_is_answered(node: NodeProcess) -> None:
    with reknit.connect_sync(node.url) as session:
        session.publish("read/me", b"x")
        start = session.ask("span")["start"]
    with bystander(node), raw(node.port) as connection:
        connection.say(Ask(2, "read", {"position": start, "stop": start + 5}))
        answer = connection.read_until(Answer)
    assert isinstance(answer, Answer)
    assert (answer.body["pieces"], answer.body["next"]) == ([], start)


@pytest.mark.parametrize(("start", "stop"), [(1, 0), (2, 2), (0, 1), (-3, 4)])
def test_a_held_range_that_can_not_be_is_refused_and_stops_nobody(
    node: NodeProcess, start: int, stop: int
) -> None:
    held = msgspec.msgpack.encode([12, 2, "a", f"bad {start}", {}, 1 << 20, [["a", SOURCE, start, stop]]])
    with bystander(node), raw(node.port) as connection:
        connection.send(wrap(KIND_MESSAGE, held))
        connection.read()
        assert connection.bye is not None
        assert connection.bye.code == Code.INVALID_ARGUMENT
    assert "Traceback" not in node.output()


def test_a_frame_may_come_byte_by_byte(node: NodeProcess) -> None:
    with raw(node.port) as connection:
        data = batch("slowly")
        for at in range(len(data)):
            connection.send(data[at : at + 1])
        ack = connection.read_until(Ack)
    assert ack == Ack(SOURCE, 1)


def test_another_version_is_told_which_side_to_upgrade(node: NodeProcess) -> None:
    with raw(node.port, hello=False) as connection:
        connection.say(Hello(VERSION + 1, "future"))
        connection.read()
        assert connection.bye is not None
        assert connection.bye.code == Code.UNIMPLEMENTED
        assert f"version {VERSION}" in connection.bye.text


def test_the_first_message_must_be_a_hello(node: NodeProcess) -> None:
    for data in (encode(Ping()), batch("unannounced")):
        with raw(node.port, hello=False) as connection:
            connection.send(data)
            connection.read()
            assert connection.bye is not None
            assert connection.bye.code == Code.FAILED_PRECONDITION


@pytest.mark.parametrize("topic", ["", "/a", "a/", "a//b", "a/*", "a/**", "a?b", "a#b", "a\nb", "$*"])
def test_a_topic_that_is_none_is_refused_and_the_connection_stays(node: NodeProcess, topic: str) -> None:
    with bystander(node), raw(node.port) as connection:
        connection.send(batch(topic, source=b"t" * 16))
        refuse = connection.read_until(Refuse)
        assert isinstance(refuse, Refuse)
        assert (refuse.start, refuse.stop, refuse.code) == (1, 2, Code.INVALID_ARGUMENT)
        connection.say(Ping())
        connection.read_until(Pong)


def test_a_pattern_that_is_none_is_refused_and_the_connection_stays(node: NodeProcess) -> None:
    with raw(node.port) as connection:
        connection.say(Subscribe(1, "a//b", "", Start(), 1000))
        refused = connection.read_until(Unsubscribed)
        assert isinstance(refused, Unsubscribed)
        assert refused.code == Code.INVALID_ARGUMENT
        connection.say(Ping())
        connection.read_until(Pong)


def test_what_only_a_node_says_is_refused(node: NodeProcess) -> None:
    for message in (Subscribed(1, 0, False), Deliver(1, 8, 0), Ack(SOURCE, 5), Hello(VERSION, "again")):
        with raw(node.port) as connection:
            connection.say(message)
            connection.read()
            assert connection.bye is not None, message


# -- anything at all

names = st.sampled_from(["", "a", "audit", "a/**", "**", "x" * 300, "a//b", "\x00", "$*", "ä/ö"])
numbers = st.one_of(st.integers(-2, 5), st.sampled_from([2**31, 2**32, 2**63 - 1, -(2**63), 2**64 - 1]))
sources = st.sampled_from([SOURCE, b"", b"short", bytes(16), b"x" * 100])
rows = st.tuples(names, sources, numbers, numbers, numbers, numbers, names, st.floats())
"""Packed like a `DispositionRow`, which checks its range when it is made."""
starts = st.builds(
    Start,
    st.booleans(),
    st.none() | numbers,
    names,
    st.none() | st.dictionaries(st.sampled_from(["", "zz", "00" * 16, "0"]), numbers, max_size=2),
)
questions = st.sampled_from(
    ["status", "ledger", "config", "topics", "checkpoint", "span", "read", "records", "find", "weather", ""]
)
arguments = st.dictionaries(
    st.sampled_from(["position", "stop", "topic", "source", "start", "pattern", "bytes_max", "time_us", "x"]),
    st.one_of(numbers, names, sources, st.none(), st.lists(numbers, max_size=2)),
    max_size=4,
)
messages = st.one_of(
    st.builds(Hello, numbers, names, names, names),
    st.just(Ping()),
    st.builds(Declare, sources, names),
    st.builds(Subscribe, numbers, names, names, starts, numbers),
    st.builds(Unsubscribe, numbers, st.booleans()),
    st.builds(Credit, numbers, numbers),
    st.builds(Settle, numbers, numbers, st.lists(rows, max_size=3)),
    st.builds(Ask, numbers, questions, arguments),
    st.builds(Answer, numbers, numbers, names, st.none(), numbers),
    st.builds(Deliver, numbers, numbers, numbers),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch, right or wrong in one of its fields."""
    topic = draw(st.sampled_from(["fuzz/1", "fuzz/2", "", "a//b", "*", "x" * 2000, "reknit/dead-letters"]))
    first = draw(st.sampled_from([1, 2, 3, 1000, 2**63, 2**64 - 1]))
    source = draw(st.sampled_from([b"f" * 16, b"g" * 16, bytes(16)]))
    payloads = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=3))
    return bytes(
        Batch.build(source, topic, first, payloads, time_us=draw(st.sampled_from([0, 1, 2**63]))).data
    )


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A frame with a byte changed, its end missing, or something between."""
    data = bytearray(draw(whole))
    at = draw(st.integers(0, len(data) - 1))
    match draw(st.integers(0, 2)):
        case 0:
            data[at] ^= draw(st.integers(1, 255))
        case 1:
            del data[at:]
        case _:
            data[at:at] = draw(st.binary(min_size=1, max_size=16))
    return bytes(data)


encoded = messages.map(lambda message: _encode(message)).filter(bool)
speech = st.lists(
    st.one_of(encoded, batches(), damaged(encoded), damaged(batches()), st.binary(max_size=64)), max_size=6
)


def _encode(message: object) -> bytes:
    try:
        return encode(message)  # type: ignore[arg-type]
    except (OverflowError, ValueError):  # a number that msgpack has no room for
        return b""


def test_whatever_is_said_nobody_else_is_affected(node: NodeProcess) -> None:
    with bystander(node):
        say_anything(node)
    with reknit.connect_sync(node.url) as session:
        assert all(row["balanced"] for row in session.ledger())
        assert session.status()["rss_bytes"] < 500 << 20


def say_anything(node: NodeProcess) -> None:
    @settings(max_examples=300, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(speech=speech, is_introduced=st.booleans())
    def say(speech: list[bytes], is_introduced: bool) -> None:
        connection = RawConnection(node.port)
        try:
            connection.send((HELLO if is_introduced else b"") + b"".join(speech))
            connection.half_close()
            connection.read(0.02)
        finally:
            connection.close()
        assert node.is_running, (speech, node.output()[-2000:])

    say()
