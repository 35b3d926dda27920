"""AMQP clients on several linked nodes, each in its own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reknit.processes.process import ending, free_port
from tests.gateway.amqp.clients import WAIT_S, Client, say, start
from tests.node.node_processes import NEAR, ORDERS, Fabric, announced

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
pytestmark = pytest.mark.real


class Linked:
    """Nodes by name, and a client at each."""

    def __init__(self, fabric: Fabric, clients: dict[str, Client]) -> None:
        self.fabric, self.clients = fabric, clients
        self.tried: list[str] = []
        """The receivers that got a message, in order."""

    def receivers(self, topic: str, **reactions: str) -> dict[str, Any]:
        """Receivers a1, b1 …, each on the node whose name is its first letter. All nodes know them."""
        made = {name: self._receiver(topic, name, react) for name, react in reactions.items()}
        names = {name[0] for name in reactions}
        asyncio.run(asyncio.wait_for(announced(self.fabric, topic, names), 150))
        return made

    def _receiver(self, topic: str, name: str, react: str) -> Any:
        def note(message: Any, delivery: Any) -> None:
            self.tried.append(name)
            say(delivery, react)

        return self.clients[name[0]].receiver(topic, note, name=name)


@contextmanager
def linked(folder: Path, *links: str) -> Iterator[Linked]:
    fabric = Fabric(folder, list(links))
    ports = {name: free_port() for name in fabric.nodes}
    for name, node in fabric.nodes.items():
        node.command += ["--amqp", f"127.0.0.1:{ports[name]}"]
    with ending(*fabric.nodes.values()), ExitStack() as stack:
        for name, node in fabric.nodes.items():
            start(node, ports[name])
        clients = {
            name: stack.enter_context(Client(f"amqp://127.0.0.1:{port}")) for name, port in ports.items()
        }
        yield Linked(fabric, clients)
        for node in fabric.nodes.values():
            assert "Traceback" not in node.output(), node.output()


def test_a_line_is_searched_to_its_end_and_back(tmp_path: Path) -> None:
    with linked(tmp_path, "ab", "bc") as nodes:
        found = nodes.receivers(NEAR, a1="release", b1="release", c1="accept")
        sender = nodes.clients["a"].sender(NEAR, resend=True)
        assert sender.send(b"x").outcome == "accepted"
        assert nodes.tried == ["a1", "b1", "c1"]
        nodes.tried.clear()
        found["b1"].close()
        assert nodes.clients["b"].sender(NEAR, resend=True).send(b"y").outcome == "accepted"
        assert nodes.tried[-1] == "c1"
        assert len(nodes.tried) == len(set(nodes.tried)), "nobody is tried twice"
        body = bytes(range(256)) * 20_000
        assert sender.stream(proton.Message(body=body), 65_536).outcome == "accepted"
        assert found["c1"].bodies[-1] == body


def test_the_far_end_of_a_diamond_is_tried_once(tmp_path: Path) -> None:
    with linked(tmp_path, "ab", "ac", "bd", "cd") as nodes:
        nodes.receivers(ORDERS, d1="release")
        sent = nodes.clients["a"].sender(ORDERS, resend=True).send(b"x")
        assert sent.outcome == "released"
        assert nodes.tried == ["d1"]


def test_an_answer_finds_its_way_over_a_link(tmp_path: Path) -> None:
    with linked(tmp_path, "ab") as nodes:
        client, service = nodes.clients["a"], nodes.clients["b"]
        questions = nodes.receivers("prices/ask", b1="accept")["b1"]
        replies = client.receiver(None, dynamic=True)
        asyncio.run(asyncio.wait_for(announced(nodes.fabric, replies.address, {"a"}), 150))
        client.sender("prices/ask").send("tea?", reply_to=replies.address, correlation_id=3)
        questions.wait(1)
        question = questions.messages[0]
        answer = proton.Message(body="12", address=question.reply_to, correlation_id=question.correlation_id)
        assert service.sender(None).send(answer).outcome == "accepted"
        assert replies.wait(1) == ["12"]
        assert replies.messages[0].correlation_id == 3


def test_nothing_is_released_when_a_node_on_the_way_is_killed(tmp_path: Path) -> None:
    with linked(tmp_path, "ab", "ac", "bd", "cd") as nodes:
        holder = nodes.receivers(ORDERS, d1="hold")["d1"]
        sender = nodes.clients["a"].sender(ORDERS, resend=True)
        in_doubt = sender.send(b"held")
        holder.wait(1)
        acceptor = nodes.receivers(ORDERS, d2="accept")["d2"]
        nodes.fabric.nodes["b"].kill()
        sent = sender.send_many([b"%d" % number for number in range(50)])
        settle_all(holder, [in_doubt, *sent])
        assert in_doubt.outcome in ("accepted", "modified")
        assert {one.outcome for one in sent} == {"accepted"}
        assert sorted({*acceptor.bodies, *holder.bodies} - {b"held"}) == sorted(b"%d" % n for n in range(50))


def settle_all(holder: Any, sent: list[Any]) -> None:
    """Accept whatever the holder gets, until every message has its outcome."""
    said: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while not all(one.is_settled for one in sent):
        assert time.monotonic() < deadline, "not everything has an outcome"
        for at in range(len(holder.messages)):
            if at not in said:
                said.add(at)
                holder.say(at, "accept")
        time.sleep(0.01)
