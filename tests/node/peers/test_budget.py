"""A peer that does not read costs a node no more than its share, and nothing that it asked for in time is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from reknit.batch import Batch
from reknit.config import (
    Config,
    JournalSettings,
    LimitSettings,
    NodeSettings,
    SecuritySettings,
    TransportSettings,
)
from reknit.config.quotas import Quotas
from reknit.credentials import NO_CREDENTIALS
from reknit.frame import Buffer
from reknit.node.node import Node
from reknit.node.peers.peers import UNSENT_BYTES, Hold, Peers, PeerState
from reknit.node.peers.reception import TURN_S, MessageTable, Reception
from reknit.outcome import Code
from reknit.server import build_node
from reknit.trust.identities import Identity
from reknit.trust.rules import ANONYMOUS
from reknit.wire.codec import Decoder, Raw, encode
from reknit.wire.messages import VERSION, Answer, Ask, Hello, Ping, Pong, Welcome
from reknit.wire.recovery import Recover
from tests.node.fabric import run, until

KIB = 1 << 10
LIMITS = LimitSettings(
    frame_bytes_max=64 * KIB,
    payload_bytes_max=16 * KIB,
    batch_bytes=16 * KIB,
    peer_bytes_max=64 * KIB,
    peers_bytes_max=160 * KIB,
    anonymous_bytes_max=128 * KIB,
)
SETTINGS = TransportSettings(heartbeat_s=1.0, peer_timeout_s=4.0, hello_timeout_s=5.0)
ANSWER = bytes(8 * KIB - UNSENT_BYTES)


class FullConnection:
    """Takes nothing more, and holds what it is sent."""

    peer, certified, is_inside, door = "tcp://127.0.0.1:1", NO_CREDENTIALS, False, "tcp"
    sent_at = received_at = 0.0

    def __init__(self) -> None:
        self.held_bytes = 0
        self.is_read = True
        self.is_closed = False

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.held_bytes += sum(map(len, buffers))

    def pause_reading(self) -> None:
        assert self.is_read, "paused twice"
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read, "resumed twice"
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True

    abort = close


def full_peers(
    count: int, identity: str = "", quotas: Quotas | None = None
) -> tuple[Peers, list[tuple[PeerState, FullConnection]]]:
    peers = Peers(Config(limits=LIMITS, transport=SETTINGS), quotas)
    found = []
    for _ in range(count):
        connection = FullConnection()
        peer = peers.add(connection, 0.0)
        peer.identified(Identity(identity))
        peer.welcomed("ann", "client")
        peer.blocked(True)
        found.append((peer, connection))
    return peers, found


class Desk:
    """A reception whose event loop and clock are turned by hand."""

    def __init__(self, table: MessageTable) -> None:
        self.now = 0.0
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.runs = 0
        self.reception = Reception(
            welcome=Welcome(VERSION, "here", "epoch", 1.0, 1 << 20),
            permissions=None,
            table=table,
            run_machines=self._run,
            call_soon=lambda call, *args: self.soon.append((call, args)),
            clock=lambda: self.now,
        )

    def _run(self) -> None:
        self.runs += 1

    def turn(self) -> None:
        """The next turn of the event loop."""
        soon, self.soon = self.soon, []
        for call, args in soon:
            call(*args)


def answering() -> Reception:
    """Answers each request with 8 KiB."""
    return Desk({Ask: lambda item, peer, now: peer.send_buffers([ANSWER])}).reception


def slow_desk(peer: PeerState, seconds: float) -> tuple[Desk, list[int]]:
    """Takes this long for each request, and says which it has taken."""
    taken: list[int] = []

    def take(item: Ask, sender: PeerState, now: float) -> None:
        taken.append(item.id)
        desk.now += seconds

    desk = Desk({Ask: take})
    peer.blocked(False)
    return desk, taken


def test_a_peer_that_asks_for_much_takes_turns_with_others() -> None:
    _, [(peer, connection)] = full_peers(1)
    desk, taken = slow_desk(peer, TURN_S * 0.6)
    desk.reception.receive([Ask(number, "read") for number in range(5)], peer, desk.now)
    assert taken == [0, 1], "the first that ends after its time was the last of this turn"
    assert not connection.is_read
    desk.turn()
    assert taken == [0, 1, 2, 3]
    desk.turn()
    assert taken == [0, 1, 2, 3, 4]
    assert connection.is_read
    desk.turn()
    assert (desk.soon, taken) == ([], [0, 1, 2, 3, 4])


def test_a_peer_that_leaves_takes_no_further_turn() -> None:
    peers, [(peer, connection)] = full_peers(1)
    desk, taken = slow_desk(peer, TURN_S * 2)
    desk.reception.receive([Ask(number, "read") for number in range(5)], peer, desk.now)
    peers.remove(connection)
    desk.turn()
    assert taken == [0]


def test_a_peer_that_stops_reading_while_it_waits_for_its_turn_waits_until_it_reads() -> None:
    _, [(peer, connection)] = full_peers(1)
    desk, taken = slow_desk(peer, TURN_S * 2)
    desk.reception.receive([Ask(number, "read") for number in range(3)], peer, desk.now)
    peer.blocked(True)
    connection.held_bytes = 40 * KIB
    desk.turn()
    assert (taken, peer.is_reading, desk.soon) == ([0], False, [])
    connection.held_bytes = 0
    peer.blocked(False)
    desk.reception.resume(peer)
    assert (taken, peer.is_reading) == ([0, 1], True), "and then its turns go on"
    desk.turn()
    assert taken == [0, 1, 2]
    assert connection.is_read


def test_each_search_is_answered_before_the_next_is_looked_at() -> None:
    _, [(peer, _)] = full_peers(1)
    search = Recover(1, "plant/temp", b"s" * 16, [(1, 4000)], 4 << 20)
    runs: list[int] = []
    desk = Desk({Recover: lambda item, peer, now: runs.append(desk.runs)})
    desk.reception.receive([search] * 3, peer, 0.0)
    assert runs == [0, 1, 2]


def test_requests_of_a_peer_that_does_not_read_wait_until_it_reads() -> None:
    _, [(peer, connection)] = full_peers(1)
    reception = answering()
    reception.receive([Ask(number, "read") for number in range(20)], peer, 0.0)
    assert connection.held_bytes == 5 * len(ANSWER), "the first above half of the share"
    assert len(peer.waiting) == 15
    assert not connection.is_read

    connection.held_bytes = 0
    peer.blocked(True)
    reception.resume(peer)
    assert len(peer.waiting) == 10, "again up to half of the share"
    assert not connection.is_read

    peer.blocked(False)
    reception.resume(peer)
    assert connection.held_bytes == 15 * len(ANSWER)
    assert connection.is_read
    assert not connection.is_closed


def test_a_peer_above_its_share_is_closed_before_more_is_sent() -> None:
    peers, [(peer, connection)] = full_peers(1)
    while not connection.is_closed and connection.held_bytes < 1 << 20:
        peers.send_buffers(peer.id, [ANSWER])
    assert connection.is_closed
    assert peer.held_bytes == LIMITS.peer_bytes_max + 8 * KIB, "at most one message more"


def test_a_peer_that_has_proven_no_name_has_a_smaller_share() -> None:
    peers, [(peer, connection)] = full_peers(1, ANONYMOUS)
    while not connection.is_closed and connection.held_bytes < 1 << 20:
        peers.send_buffers(peer.id, [ANSWER])
    assert connection.is_closed
    assert peer.held_bytes == LIMITS.anonymous_bytes_max // 4 + 8 * KIB


def test_above_the_budget_of_all_peers_the_one_with_the_most_is_closed() -> None:
    peers, found = full_peers(4)
    for (peer, _), count in zip(found, (5, 6, 4, 4), strict=True):
        peers.send_buffers(peer.id, [ANSWER] * count)
    peers.send_buffers(found[0][0].id, [ANSWER])
    assert [connection.is_closed for _, connection in found] == [False] * 4
    peers.send_buffers(found[2][0].id, [ANSWER] * 4)
    peers.check(0.5)
    assert [connection.is_closed for _, connection in found] == [False, False, True, False]


def test_peers_without_a_name_do_not_use_up_the_budget_of_others() -> None:
    peers, found = full_peers(5, ANONYMOUS)
    named, known = found[0]
    named.identified(Identity("ann", "token", "laptop"))
    peers.send_buffers(named.id, [ANSWER] * 5)
    for peer, _ in found[1:]:
        peers.send_buffers(peer.id, [ANSWER] * 5)
    peers.check(0.5)
    assert not known.is_closed
    assert sum(connection.is_closed for _, connection in found[1:]) == 1, "160 KiB of 128 KiB"


class Client:
    """A client of a gateway, for which something waits."""

    is_leaving = is_anonymous = False
    quota_name = "web"

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
        self.why = ""

    def end(self, code: Code, text: str) -> None:
        self.why = text


def test_clients_of_gateways_count_against_the_share_of_one_and_the_budget_of_all() -> None:
    peers, [(_, connection)] = full_peers(1)
    connection.held_bytes = 40 * KIB
    clients = [Client(65 * KIB), Client(63 * KIB), Client(50 * KIB)]
    peers.clients.append(lambda: [client for client in clients if not client.why])
    peers.check(0.5)
    assert "(limits.peer_bytes_max)" in clients[0].why
    assert [bool(client.why) for client in clients] == [True, False, False], "153 KiB of 160 KiB"
    connection.held_bytes = 62 * KIB
    peers.check(1.0)
    assert "(limits.peers_bytes_max)" in clients[1].why
    assert not connection.is_closed


def test_clients_that_left_do_not_count_any_more() -> None:
    peers, [(peer, connection)] = full_peers(1)
    clients = [Client(63 * KIB), Client(63 * KIB)]
    peers.clients.append(lambda: clients)
    peers.check(0.5)
    clients.clear()
    connection.held_bytes = 60 * KIB
    peers.check(1.0)
    assert peers._budget.total == peer.held_bytes
    assert not connection.is_closed


def test_a_peer_that_reads_slowly_is_alive_and_one_that_does_not_read_is_closed() -> None:
    peers, [(slow, slowly), (stuck, never)] = full_peers(2)
    for peer, connection in ((slow, slowly), (stuck, never)):
        connection.held_bytes = 40 * KIB
        peer.wait([Ping()], Hold.UNREAD)
    now = 0.0
    while now < 10.0:
        peers.check(now)
        slowly.held_bytes -= 1
        now += 0.5
    assert not slowly.is_closed
    assert never.is_closed


def test_a_peer_that_waits_for_the_journal_is_not_taken_for_silent() -> None:
    peers, [(peer, connection)] = full_peers(1)
    peer.hold(Hold.JOURNAL)
    for step in range(20):
        peers.check(step / 2)
    assert not connection.is_closed


def test_a_peer_that_does_not_read_is_not_waited_for_when_it_has_to_leave() -> None:
    _, [(peer, connection)] = full_peers(1)
    connection.held_bytes = 40 * KIB
    peer.wait([Ping()], Hold.UNREAD)
    peer.dismiss(Code.INTERNAL, "no more")
    assert connection.is_closed
    assert connection.held_bytes == 40 * KIB, "it would not read why"


def test_reading_goes_on_when_no_reason_to_pause_is_left() -> None:
    _, [(peer, connection)] = full_peers(1)
    peer.hold(Hold.JOURNAL)
    peer.wait([Ping()], Hold.UNREAD)
    peer.release(Hold.UNREAD)
    assert not connection.is_read
    peer.release(Hold.JOURNAL)
    assert connection.is_read


# -- over TCP


class SilentClient:
    """Asks, and reads only when the test says so."""

    def __init__(self, node: Node) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        host, port = node.urls[0].removeprefix("tcp://").split(":")
        self.socket.connect((host, int(port)))
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, count: int) -> list[Answer]:
        """The next answers, each with its bytes."""
        decoder, answers, raws = Decoder(), [], 0
        while raws < count:
            for item in decoder.feed(await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)):
                raws += isinstance(item, Raw)
                answers += [item] if isinstance(item, Answer) else []
        return answers


def node_config(**security: object) -> Config:
    return Config(
        node=NodeSettings(name="test", listen=("tcp://127.0.0.1:0",)),
        journal=JournalSettings(kind="memory"),
        limits=LimitSettings(frame_bytes_max=2 << 20, payload_bytes_max=1 << 20, peer_bytes_max=4 << 20),
        security=SecuritySettings(**security),  # type: ignore[arg-type]
    )


async def publish(client: SilentClient, source: bytes) -> None:
    for first in range(1, 4001, 1000):
        batch = Batch.build(source, "plant/temp", first, [b"x" * 1000] * 1000, time_us=1)
        await client.send(bytes(batch.data))


@pytest.mark.parametrize("requests", [24])
def test_a_flood_of_requests_is_answered_as_fast_as_it_is_read(requests: int) -> None:
    async def test() -> None:
        config = node_config()
        async with build_node(config) as node:
            writer, reader = SilentClient(node), SilentClient(node)
            for client in (writer, reader):
                await client.send(encode(Hello(VERSION, "m")))
            await publish(writer, b"s" * 16)
            await until(lambda: node.journal.end > 4_000_000)
            asks = [Ask(number, "read", {"position": 0, "bytes_max": 1 << 20}) for number in range(requests)]
            await reader.send(b"".join(map(encode, asks)))
            await until(lambda: any(peer.waiting for peer in node.peers))
            held = max(peer.held_bytes for peer in node.peers)
            assert held <= config.limits.peer_bytes_max // 2 + (1 << 20) + 64 * KIB, (
                "half its share, and an answer"
            )
            answers = await reader.read(requests)
            assert [answer.id for answer in answers] == list(range(requests)), "each is answered in the end"
            for client in (writer, reader):
                client.socket.close()
            await until(lambda: not len(node.peers))

    run(test)


def count_searches(node: Node) -> list[str]:
    """The topics of all searches in the node's journal from now on."""
    searches: list[str] = []
    holder = node.core.recovery.holder
    find = holder.find

    def counted(topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        searches.append(topic)
        return find(topic, source, start, stop, bytes_max)

    holder.find = counted  # type: ignore[method-assign]
    return searches


@pytest.mark.parametrize("message", [Recover(1, "plant/temp", b"s" * 16, [(1, 4000)], 4 << 20), Ping()])
def test_no_kind_of_request_makes_the_queue_to_a_silent_peer_long(message: Recover | Ping) -> None:
    async def test() -> None:
        config = node_config()
        async with build_node(config) as node:
            client = SilentClient(node)
            await client.send(encode(Hello(VERSION, "m")))
            await publish(client, b"s" * 16)
            await until(lambda: node.journal.end > 4_000_000)
            flood = encode(message) * (200 if isinstance(message, Recover) else 20_000)
            searches = count_searches(node)
            held, sending = 0, asyncio.create_task(client.send(flood * 10))
            for _ in range(200):
                await asyncio.sleep(0)
                held = max([held, *(peer.held_bytes for peer in node.peers)])
            assert held <= config.limits.peer_bytes_max + (4 << 20)
            assert len(searches) <= 2, "what is not sent is not looked for: it would wait in memory"
            sending.cancel()
            client.socket.close()
            await until(lambda: not len(node.peers))

    run(test)


def test_a_node_closes_a_connection_that_sends_a_long_frame_before_hello() -> None:
    async def test() -> None:
        async with build_node(node_config()) as node:
            client = SilentClient(node)
            batch = Batch.build(b"s" * 16, "plant/temp", 1, [b"x" * 10_000], time_us=1)
            await client.send(bytes(batch.data))
            with suppress(ConnectionResetError):  # the rest of the frame was not read
                while await asyncio.get_running_loop().sock_recv(client.socket, 1 << 20):
                    pass
            await until(lambda: not len(node.peers))
            assert node.journal.end == 0
            client.socket.close()

    run(test)


def test_answers_go_out_in_order_around_a_wait() -> None:
    _, [(peer, connection)] = full_peers(1)
    order: list[object] = []

    def note(item: Ping | Pong, peer: PeerState, now: float) -> None:
        order.append(item)

    reception = Desk({Ping: note, Pong: note}).reception
    connection.held_bytes = 40 * KIB
    reception.receive([Ping(), Pong()], peer, 0.0)
    assert order == []
    connection.held_bytes = 0
    reception.resume(peer)
    assert order == [Ping(), Pong()]


def test_the_connections_of_an_identity_share_its_quota_of_waiting_bytes() -> None:
    """Two connections of `ann` have 24 KiB together, of 20 that it may have: the one with the most is closed."""
    peers, [(one, first), (two, second)] = full_peers(2, "ann", Quotas([f"ann waiting_bytes={20 * KIB}"]))
    for _ in range(2):
        one.send_buffers([ANSWER])
    two.send_buffers([ANSWER])
    peers.check(0.0)
    assert (first.is_closed, second.is_closed, two.is_leaving) == (True, False, False)
