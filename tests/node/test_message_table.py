"""Every message has a place: a handler on the node, or a client that receives it."""

from __future__ import annotations

from typing import Any

import pytest

from reknit.credentials import NO_CREDENTIALS
from reknit.node.message_table import NodeMessages
from reknit.node.peers.peers import PeerState
from reknit.node.peers.reception import MessageTable, Reception
from reknit.outcome import Code
from reknit.wire import links, messages, outcomes, recovery, streams
from reknit.wire.codec import Decoder, Frames
from reknit.wire.messages import VERSION, Ask, Bye, Hello, Message, Ping, Welcome

TO_CLIENTS = {
    messages.Ack,
    messages.Answer,
    messages.Deliver,
    messages.Expect,
    messages.Go,
    messages.Hold,
    messages.Lost,
    messages.Refuse,
    messages.Revoked,
    messages.Settled,
    messages.Subscribed,
    messages.Unsubscribed,
    messages.Welcome,
    outcomes.PathThere,
    outcomes.Told,
    recovery.Stored,
}
WELCOME = Welcome(VERSION, "here", "epoch", 1.0, 1 << 20)


def kinds() -> set[type[Message]]:
    found: set[type[Message]] = set()
    for module in (messages, links, outcomes, recovery, streams):
        found |= {
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, Message) and one is not Message
        }
    return found


class Line:
    """A connection that remembers what was sent over it."""

    peer, certified, is_inside, door = "someone", NO_CREDENTIALS, False, "tcp"
    received_at = sent_at = 0.0

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.is_closed = False

    def send(self, buffers: Any) -> None:
        self.sent += Decoder().feed(b"".join(bytes(one) for one in buffers))

    def close(self) -> None:
        self.is_closed = True

    abort = close
    held_bytes = 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def reception(table: MessageTable) -> tuple[Reception, PeerState, Line]:
    line = Line()
    made = Reception(
        welcome=WELCOME,
        permissions=None,
        table=table,
        run_machines=lambda: None,
        call_soon=lambda *args: None,
        clock=lambda: 0.0,
    )
    return made, PeerState(1, line, 0.0), line


def test_every_message_is_for_a_node_or_for_a_client() -> None:
    nothing: Any = None
    router = NodeMessages(
        core=nothing, links=nothing, anycast=nothing, caches=nothing, bridges=nothing, admin=nothing
    )
    assert set(router.table()) == (kinds() | {Frames}) - TO_CLIENTS - {Hello}


def test_a_message_goes_to_the_handler_of_its_type() -> None:
    taken: list[tuple[Any, int, float]] = []
    made, peer, line = reception({Ping: lambda item, sender, now: taken.append((item, sender.id, now))})
    made.greet(Hello(VERSION, "ann"), peer)
    assert (line.sent, peer.name, peer.is_welcome) == ([WELCOME], "ann", True)
    made.take(Ping(), peer, 3.0)
    assert taken == [(Ping(), 1, 3.0)]


@pytest.mark.parametrize("item", [Ask(1, "status"), Hello(VERSION, "again")])
def test_a_message_without_a_handler_ends_the_connection(item: Ask | Hello) -> None:
    made, peer, line = reception({})
    made.greet(Hello(VERSION, "ann"), peer)
    made.take(item, peer, 0.0)
    assert isinstance(line.sent[-1], Bye)
    assert line.sent[-1].code == Code.INVALID_ARGUMENT
    assert type(item).__name__ in line.sent[-1].text
    assert line.is_closed
