"""Which connections a node closes: those of silent peers, never because the node itself was suspended."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.config import Config, TransportSettings
from reknit.credentials import NO_CREDENTIALS
from reknit.frame import Buffer
from reknit.node.peers.peers import Peers

SETTINGS = TransportSettings(heartbeat_s=1.0, peer_timeout_s=4.0, hello_timeout_s=5.0)


class QuietConnection:
    """Says nothing, and counts what it is sent."""

    peer = "tcp://127.0.0.1:1"
    certified = NO_CREDENTIALS
    is_inside = False
    door = "tcp"
    sent_at = 0.0

    def __init__(self) -> None:
        self.received_at = 0.0
        self.frames = 0
        self.is_closed = False

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.frames += len(buffers)

    def close(self) -> None:
        self.is_closed = True

    abort = close
    held_bytes = 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected() -> tuple[Peers, QuietConnection]:
    peers, connection = Peers(Config(transport=SETTINGS)), QuietConnection()
    peers.add(connection, 0.0).is_welcome = True
    return peers, connection


def check_until(peers: Peers, begin: float, end: float) -> None:
    now = begin
    while now <= end:
        peers.check(now)
        now += 0.5


def test_a_quiet_peer_is_pinged_and_a_silent_one_is_closed() -> None:
    peers, connection = connected()
    check_until(peers, 0.0, 3.5)
    assert connection.frames > 0
    assert not connection.is_closed
    check_until(peers, 4.0, 5.0)
    assert connection.is_closed


def test_after_a_suspension_peers_get_time_to_be_heard() -> None:
    peers, connection = connected()
    check_until(peers, 0.0, 1.0)
    check_until(peers, 21.0, 24.5)
    assert not connection.is_closed, "the node was suspended, not the peer"
    connection.received_at = 24.0
    check_until(peers, 25.0, 27.5)
    assert not connection.is_closed
    check_until(peers, 28.0, 29.0)
    assert connection.is_closed, "now it was the peer"


def test_a_suspension_does_not_end_the_time_for_a_hello() -> None:
    peers, connection = Peers(Config(transport=SETTINGS)), QuietConnection()
    peers.add(connection, 0.0)
    check_until(peers, 0.0, 0.5)
    connection.received_at = 20.5
    check_until(peers, 20.5, 21.0)
    assert not connection.is_closed
