"""Bad input, silent clients, crashes, and a node that stops."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reknit.gateway.amqp.codec.encoding import Symbol, encode, listed
from reknit.gateway.amqp.sasl import AMQP_HEADER, SASL_HEADER, frame
from reknit.node.node import Node
from reknit.processes.process import NodeProcess, ending, free_port
from tests.client.node_thread import serving
from tests.gateway.amqp.clients import WAIT_S, Client, amqp_of, broker, config, start, url_of

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with broker() as one:
        yield one


@pytest.fixture(autouse=True)
def no_internal_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients send, the gateway logs no error of its own, and the event loop none either."""
    yield
    records = [one for one in caplog.get_records("call") if one.name.startswith(("reknit", "asyncio"))]
    errors = [one for one in records if one.levelno >= logging.ERROR]
    assert not errors, [f"{one.getMessage()} {one.exc_text or ''}" for one in errors]


@pytest.fixture
def still_serves(node: Node) -> Iterator[None]:
    """After the test, a client can send and receive."""
    yield
    with Client(url_of(node)) as client:
        receiver = client.receiver("alive/now")
        assert client.sender("alive/now").send(b"x").outcome == "accepted"
        assert receiver.wait(1) == [b"x"]


def port_of(node: Node) -> int:
    return int(url_of(node).rpartition(":")[2])


def shout(node: Node, data: bytes) -> None:
    """Send bytes, and read until the node closes the connection or stays silent."""
    with socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S) as sock, contextlib.suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(WAIT_S)
        while sock.recv(65536):
            pass


def transfer(number: int, payload: bytes, has_more: bool) -> bytes:
    """A frame with a message, or part of one, on the first link."""
    fields = [uint(0), uint(number), encode(b"%d" % number), uint(0), encode(False), encode(has_more)]
    body = b"\x00\x53\x14" + listed(fields) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def converse(node: Node, data: bytes) -> None:
    """Attach links as a client does, wait for credit, then send these bytes."""
    with socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S) as sock:
        sock.sendall(CONVERSATION)
        said = b""
        while b"\x00\x53\x13" not in said.partition(b"plant/temp")[2]:
            said += sock.recv(65536)
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass


def frames() -> bytes:
    """A complete conversation of a real client: open, begin, attach, transfers. Made by proton without a socket."""
    connection, transport, collector = proton.Connection(), proton.Transport(), proton.Collector()
    connection.collect(collector)
    transport.bind(connection)
    connection.container, connection.hostname = "fuzz", "localhost"
    connection.open()
    session = connection.session()
    session.open()
    sender, receiver = session.sender("out"), session.receiver("in")
    sender.target.address, receiver.source.address = "plant/temp", "plant/**"
    sender.open()
    receiver.open()
    receiver.flow(10)
    said = b""
    while (size := transport.pending()) > 0:
        said += transport.peek(size)
        transport.pop(size)
    return said


CONVERSATION = frames()
LAX = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.usefixtures("still_serves")
@LAX
@given(data=st.binary(max_size=300))
def test_any_bytes_leave_the_node_as_it_was(node: Node, data: bytes) -> None:
    shout(node, data)


@pytest.mark.usefixtures("still_serves")
@LAX
@given(data=st.binary(max_size=300))
def test_any_bytes_after_the_header_leave_the_node_as_it_was(node: Node, data: bytes) -> None:
    shout(node, AMQP_HEADER + data)


@pytest.mark.usefixtures("still_serves")
@LAX
@given(
    changes=st.lists(st.tuples(st.integers(8, len(CONVERSATION) - 1), st.integers(0, 255)), max_size=8),
    cut=st.integers(8, len(CONVERSATION)),
)
def test_a_garbled_conversation_leaves_the_node_as_it_was(
    node: Node, changes: list[tuple[int, int]], cut: int
) -> None:
    said = bytearray(CONVERSATION)
    for at, value in changes:
        said[at] = value
    shout(node, bytes(said[:cut]))


MESSAGE = bytes(proton.Message(body=b"x" * 30, subject="s", properties={"a": 1}).encode())
TRANSFERS = b"".join(transfer(number, MESSAGE, has_more=False) for number in range(3)) + b"".join(
    transfer(3, b"z" * 1_000, has_more=True) for _ in range(3)
)


@pytest.mark.usefixtures("still_serves")
@LAX
@given(
    changes=st.lists(st.tuples(st.integers(0, len(TRANSFERS) - 1), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, len(TRANSFERS)),
)
def test_garbled_messages_leave_the_node_as_it_was(
    node: Node, changes: list[tuple[int, int]], cut: int
) -> None:
    said = bytearray(TRANSFERS)
    for at, value in changes:
        said[at] = value
    converse(node, bytes(said[:cut]))


def test_clients_that_come_and_go_leave_nothing_behind(node: Node) -> None:
    for _ in range(30):
        shout(node, CONVERSATION)
        converse(node, TRANSFERS)
    amqp, queues = amqp_of(node), node.core.dispatch.queues
    deadline = time.monotonic() + WAIT_S
    while amqp.connections or queues or amqp.replies:
        assert time.monotonic() < deadline, f"{len(queues)} subscriptions are still there"
        time.sleep(0.01)


def test_a_neighbour_loses_nothing_by_a_client_that_talks_nonsense(node: Node) -> None:
    with Client(url_of(node)) as client:
        receiver = client.receiver("neighbour/temp")
        sender = client.sender("neighbour/temp")
        for number in range(20):
            shout(node, CONVERSATION[: 20 + 7 * number] + b"\xff" * number)
            assert sender.send(b"%d" % number).outcome == "accepted"
        assert receiver.wait(20) == [b"%d" % number for number in range(20)]


ANONYMOUS = SASL_HEADER + frame(0x41, [encode(Symbol("ANONYMOUS"))])
SECOND_SASL = {
    "no mechanism": SASL_HEADER + frame(0x41, [b"\x40"]),
    "another login": ANONYMOUS,
    "TLS": b"AMQP\x02\x01\x00\x00" + b"\x16\x03\x01",
    "another version": b"AMQP\x00\x01\x00\x01",
    "no header": b"\x00\x00\x00\x08\x02\x00\x00\x00",
}


@pytest.mark.parametrize("after", SECOND_SASL)
@pytest.mark.usefixtures("still_serves")
def test_only_amqp_follows_sasl(node: Node, after: str) -> None:
    """Proton took a second SASL header for an exchange of its own, and crashed where no mechanism was named."""
    with socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S) as sock:
        sock.sendall(ANONYMOUS + SECOND_SASL[after])
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := sock.recv(100):
                answer += data
    assert answer.endswith(AMQP_HEADER)


@pytest.mark.parametrize("said", [b"", AMQP_HEADER])
def test_a_client_that_never_opens_its_connection_is_not_waited_for(said: bytes) -> None:
    with (
        broker(config(hello_timeout_s=0.05)) as node,
        socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S) as sock,
    ):
        sock.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(100):
                pass


def test_a_client_that_falls_silent_is_let_go() -> None:
    with broker(config(idle_s=1.5)) as node, Client(url_of(node)) as client:
        receiver = client.receiver("plant/temp")
        client.sender("plant/temp").send(b"kept alive by heartbeats")
        receiver.wait(1)
        with socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S) as sock:
            sock.sendall(CONVERSATION)
            sock.settimeout(WAIT_S)
            said = b""
            while data := sock.recv(65536):
                said += data
            assert b"amqp:resource-limit-exceeded" in said
        assert client.sender("plant/temp", name="again").send(b"x").outcome == "accepted"


def test_one_connection_too_many_is_told_so() -> None:
    with broker(config(connections_max=1)) as node, Client(url_of(node)), Client(url_of(node)) as second:
        second.wait(lambda: second.errors, "the reason")
        assert second.errors[0][0] == "amqp:resource-limit-exceeded"


def test_a_node_that_stops_closes_links_with_a_reason() -> None:
    with serving(config()) as node:
        client = Client(url_of(node))
        receiver = client.receiver("plant/temp")
        sent = client.sender("plant/temp").send_many([b"x"] * 100)
        receiver.wait(100)
    with client:
        assert {one.outcome for one in sent} == {"accepted"}
        client.wait(lambda: len(client.errors) >= 3, "the reasons")
        assert {name for name, _ in client.errors} == {"amqp:link:detach-forced", "amqp:connection:forced"}


@pytest.mark.real
def test_nothing_that_was_accepted_is_lost_when_the_node_is_killed(tmp_path: Path) -> None:
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    node = NodeProcess(tmp_path, "--amqp", f"127.0.0.1:{port}")
    with ending(node):
        start(node, port)
        with Client(url, container_id="shop") as client:
            held = client.receiver("orders/new", "hold", durable=True, name="in", credit=10)
            sender = client.sender("orders/new")
            first = sender.send_many([b"%d" % number for number in range(50)])
            assert {one.outcome for one in first} == {"accepted"}
            held.wait(10)
            held.say(0, "accept")
            later = sender.send_many([b"%d" % number for number in range(50, 300)])
            node.kill()
            client.wait(lambda: client.is_closed, "the end of the connection")
            accepted = [number for number, one in enumerate([*first, *later]) if "accepted" in one.states]
        start(node, port)
        with Client(url, container_id="shop") as client:
            again = client.receiver("orders/new", durable=True, name="in", credit=1_000)
            wanted = {b"%d" % number for number in accepted[1:]}
            deadline = time.monotonic() + WAIT_S
            while not wanted <= set(again.bodies):
                assert time.monotonic() < deadline, f"missing: {wanted - set(again.bodies)}"
                time.sleep(0.02)
            assert len(again.bodies) == len(set(again.bodies))
        node.stop()


@pytest.mark.real
def test_an_unsettled_message_gets_an_outcome_when_the_node_comes_back(tmp_path: Path) -> None:
    """If the node is killed while a receiver has an anycast message, the sender gets no outcome, and sends again."""
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    (tmp_path / "reknit.toml").write_text('[[topics]]\npattern = "orders/**"\ndistribution = "balanced"\n')
    node = NodeProcess(tmp_path, "--amqp", f"127.0.0.1:{port}")
    with ending(node):
        start(node, port)
        with Client(url) as client:
            held = client.receiver("orders/new", "hold")
            sent = client.sender("orders/new").send(b"first")
            held.wait(1)
            node.kill()
            client.wait(lambda: client.is_closed, "the end of the connection")
            assert not sent.is_settled
        start(node, port)
        with Client(url) as client:
            receiver = client.receiver("orders/new")
            again = client.sender("orders/new").send(b"first, again")
            assert again.outcome == "accepted"
            assert b"first, again" in receiver.bodies
        node.stop()


# -- found by `make fuzz`


def attach(name: bytes, container: bytes, is_sender: bool, initial: int) -> bytes:
    """Open, begin and attach, with fields that proton would not write."""
    source, target = described(0x28, [encode("plant/temp"), uint(2)]), described(0x29, [encode("plant/temp")])
    fields = [
        b"\xa1" + bytes([len(name)]) + name,
        uint(0),
        encode(not is_sender),
        b"\x40",
        b"\x40",
        source,
        target,
    ]
    fields += [b"\x40", b"\x40", uint(initial)]
    opened = described(0x10, [b"\xa1" + bytes([len(container)]) + container])
    begun = described(0x11, [b"\x40", uint(0), uint(100), uint(100)])
    return AMQP_HEADER + b"".join(framed(one) for one in (opened, begun, described(0x12, fields)))


def described(code: int, fields: list[bytes]) -> bytes:
    return bytes((0x00, 0x53, code)) + listed(fields)


def framed(body: bytes) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


@pytest.mark.usefixtures("still_serves")
def test_a_container_whose_name_is_not_utf_8_may_receive(node: Node) -> None:
    shout(node, attach(b"in", b"\xff\xfe", is_sender=False, initial=0))


@pytest.mark.usefixtures("still_serves")
def test_a_sender_may_begin_to_count_anywhere(node: Node) -> None:
    for initial in (1 << 31, (1 << 32) - 1):
        shout(node, attach(b"out", b"c", is_sender=True, initial=initial))
