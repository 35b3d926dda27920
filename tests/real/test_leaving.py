"""A subscriber leaves under load while another is elsewhere: nothing but ACCEPTED, whatever the moment.

`REKNIT_LEAVES=100` makes it a long test; a few rounds are part of every run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.session import connect
from reknit.outcome import Outcome
from reknit.processes.process import NodeProcess, ending, free_port
from tests.node.node_processes import (
    CONFIG,
    ORDERS,
    PATIENCE_S,
    accept,
    fabric,
    outcome,
    run,
    slowly_accept,
    subscribing,
    until,
)

LEAVES = int(os.environ.get("REKNIT_LEAVES", "3"))
EVENTS = 200
SENDERS = 10

pytestmark = pytest.mark.timeout(240 + 10 * LEAVES)


def test_a_subscriber_leaves_and_everything_is_accepted(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "bc") as made:
            log: list[tuple[str, int]] = []
            async with connect(made.url("a")) as session, subscribing(made, log, ORDERS, b1=slowly_accept):
                publisher = session.publisher(ORDERS, resend_released=True)
                assert isinstance(publisher, OutcomePublisher)
                for number in range(LEAVES):
                    said = await _leave_once(made, publisher, log)
                    assert said == {Outcome.ACCEPTED: EVENTS}, f"round {number + 1}"
                    assert {name for name, _ in log} == {"b1", "c1"}, "both had some"
                    log.clear()

    run(test, PATIENCE_S + 10 * LEAVES)


async def _leave_once(made: Any, publisher: OutcomePublisher, log: list[tuple[str, int]]) -> Counter[Outcome]:
    async with subscribing(made, log, ORDERS, c1=accept) as found:

        async def load() -> list[Outcome]:
            return [await outcome(publisher) for _ in range(EVENTS // SENDERS)]

        loading = asyncio.gather(*(load() for _ in range(SENDERS)))
        await until(lambda: sum(name == "c1" for name, _ in log) >= SENDERS)
        await found["c1"].leave()
        return Counter(one for part in await loading for one in part)


def test_an_amqp_receiver_leaves_and_everything_is_accepted(tmp_path: Path) -> None:
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    from tests.gateway.amqp.clients import Client, start

    settings = tmp_path / "fabric.toml"
    settings.write_text(CONFIG)
    nodes: dict[str, NodeProcess] = {}
    ports: dict[str, int] = {}
    for name in "abc":
        port = ports[name] = free_port()
        options = ("--config", str(settings), "--set", "journal.sync=false", "--amqp", f"127.0.0.1:{port}")
        link = ("--link", nodes[chr(ord(name) - 1)].url) if nodes else ()
        nodes[name] = NodeProcess(tmp_path, *options, *link, name=name)
    with ending(*nodes.values()):
        for name, node in nodes.items():
            start(node, ports[name])
        with (
            Client(f"amqp://127.0.0.1:{ports['a']}") as sending,
            Client(f"amqp://127.0.0.1:{ports['b']}") as staying,
            Client(f"amqp://127.0.0.1:{ports['c']}") as leaving,
        ):
            stays = staying.receiver(ORDERS, _accept, credit=5, name="stays")
            sender = sending.sender(ORDERS, resend=True)
            for number in range(LEAVES):
                leaves = leaving.receiver(ORDERS, _accept, credit=5, name=f"leaves{number}")
                said = _send_and_leave(sending, sender, leaves)
                assert said == {"accepted": EVENTS}, f"round {number + 1}"
                assert leaves.messages
                assert stays.messages
                stays.messages.clear()
                stays.deliveries.clear()
        for node in nodes.values():
            assert "Traceback" not in node.output(), node.output()


def _accept(message: Any, delivery: Any) -> None:
    from tests.gateway.amqp.clients import say

    link = delivery.link
    say(delivery, "accept")
    if not link.drain_mode:
        link.flow(1)


def _send_and_leave(client: Any, sender: Any, leaves: Any) -> Counter[str]:
    """Send from a thread; meanwhile the receiver gives back its credit, and leaves when it has settled all."""
    sent: list[Any] = []
    loading = threading.Thread(target=lambda: sent.extend(sender.send_many([b"x"] * EVENTS)))
    loading.start()
    leaves.wait(5)
    leaves._client.call(lambda: leaves.link.drain(0))
    leaves._client.wait(lambda: leaves.link.credit == 0, "the end of the credit")
    leaves.close()
    loading.join()
    assert len(sent) == EVENTS
    return Counter(one.outcome for one in sent)
