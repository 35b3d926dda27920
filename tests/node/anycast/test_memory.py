"""10,000 re-forwards leave no unsettled record and no memory behind. The test counts the objects that are held."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.config import AnycastSettings
from reknit.node.anycast.gateway_api import Result
from reknit.node.anycast.gateway_ends import GatewayReceiver
from reknit.node.node import Node
from reknit.outcome import Outcome
from reknit.protocol.anycast.delivery import HERE, AnycastDelivery
from reknit.protocol.anycast.inputs import Attach, DeliverLocally, OfferEvents, SubscriberOutcomes
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.anycast.queues import STALE_MIN
from reknit.protocol.routing.routes import Routes
from reknit.server import build_node
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow
from tests.node.anycast.test_gateway_api import config
from tests.node.node_processes import run, until

SOURCE = b"s" * 16
RE_FORWARDS = 10_000


def deliveries() -> int:
    """How many deliveries exist in this process, in any state."""
    gc.collect()
    return sum(type(one) is AnycastDelivery for one in gc.get_objects())


def releasing_first() -> AnycastMachine:
    machine = AnycastMachine("a", Routes("a", 1), Random(1))
    for key in ("releases", "accepts"):
        machine.receive(Attach(Pattern("orders"), "unsettled", 1 << 40, key), key, 0.0)
    return machine


def re_forward(machine: AnycastMachine, first: int, deadline: float | None) -> None:
    """One event that the first who gets it releases, and the second accepts."""
    batch = Batch.build(SOURCE, "orders", first, [bytes(1000)], time_us=0)
    machine.receive(OfferEvents(batch, "balanced", resend=True, deadline=deadline), HERE, 0.0)
    for outcome in (Outcome.RELEASED, Outcome.ACCEPTED):
        [hand] = [effect for effect in machine.take_effects() if isinstance(effect, DeliverLocally)]
        machine.receive(
            SubscriberOutcomes([DispositionRow("orders", SOURCE, first, first + 1, outcome)]), hand.key, 0.0
        )
    machine.take_effects()


@pytest.mark.parametrize("deadline", [None, 3600.0])
def test_a_machine_holds_nothing_of_what_it_re_forwarded(deadline: float | None) -> None:
    before = deliveries()
    machine = releasing_first()
    for seq in range(1, RE_FORWARDS + 1):
        re_forward(machine, seq, deadline)
    assert [path.unsettled for path in machine.paths()] == [0, 0]
    assert machine.records() == machine.held_bytes == 0
    assert deliveries() - before <= (0 if deadline is None else STALE_MIN + 1)


@pytest.mark.parametrize("deadline", [None, 3600.0])
def test_a_machine_takes_no_more_memory_for_more_of_them(deadline: float | None) -> None:
    machine = releasing_first()
    for seq in range(1, 1000):
        re_forward(machine, seq, deadline)
    gc.collect()
    tracemalloc.start()
    try:
        for seq in range(1000, 3000):
            re_forward(machine, seq, deadline)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An event has 1,000 bytes: 2,000 that are held would be 2 MB; with a ttl, a few wait to be cleared away.
    assert grown < (32 << 10 if deadline is None else 2000 * (STALE_MIN + 1))


class Answering:
    """A receiver that says the same of every event, one at a time."""

    def __init__(self, made: Node, outcome: Outcome) -> None:
        self._outcome = outcome
        self.count = 0
        self.receiver: GatewayReceiver = made.anycast.receiver("orders/**", self._take, name=outcome.name)
        self.receiver.credit(4 * RE_FORWARDS)

    def _take(self, batch: Batch, attempt: int) -> None:
        self.count += batch.count
        for seq in range(batch.first, batch.stop):
            self.receiver.settle(batch.topic, batch.source, seq, seq + 1, self._outcome)


PARTS = (
    "reknit.protocol.anycast",
    "reknit.node.anycast.anycast",
    "reknit.node.anycast.ledger",
    "reknit.node.anycast.senders",
    "reknit.node.anycast.outcome_notifier",
    "reknit.node.anycast.local_paths",
    "reknit.node.anycast.journal_offers",
    "reknit.node.anycast.ledger_writer",
)


def parts(owner: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a node's anycast, down to its containers, by name."""
    for name in vars(owner) if hasattr(owner, "__dict__") else owner.__slots__:
        value = getattr(owner, name)
        yield f"{type(owner).__name__}.{name}", value
        if type(value).__module__.startswith(PARTS):
            yield from parts(value)


def sizes(anycast: Any) -> dict[str, int]:
    """Everything countable that a node's anycast, its machine and its paths hold."""
    owners = [anycast, *anycast.machine.paths()]
    found = {name: value for owner in owners for name, value in parts(owner)}
    return {
        name: len(value)
        for name, value in found.items()
        if isinstance(value, dict | list | set | tuple) or hasattr(value, "popleft")
    }


def test_a_node_holds_nothing_of_what_it_re_forwarded() -> None:
    async def test() -> None:
        before = deliveries()
        settings = AnycastSettings(trail_attempts_max=10)
        async with build_node(config(anycast=settings)) as made:
            releases, accepts = Answering(made, Outcome.RELEASED), Answering(made, Outcome.ACCEPTED)
            outcomes: list[int] = []

            def hear(results: Sequence[Result]) -> None:
                outcomes.extend(one.outcome for one in results for _ in range(one.start, one.stop))

            sender = made.anycast.sender("orders/new", hear, resend_released=True)
            sender.offer([bytes(100)])
            await until(lambda: len(outcomes) == 1 and not made.anycast.ledger.is_due)
            counted = sizes(made.anycast)
            while releases.count < RE_FORWARDS:
                sender.offer([bytes(100)] * 500)
                await until(lambda: sender.unsettled == 0)
                await asyncio.sleep(0)
            assert set(outcomes) == {Outcome.ACCEPTED}
            assert len(outcomes) == accepts.count
            assert made.anycast.machine.records() == made.anycast.machine.held_bytes == 0
            assert [path.unsettled for path in made.anycast.machine.paths()] == [0, 0]
            await until(lambda: not made.anycast.ledger.is_due)
            assert sizes(made.anycast) == counted
            assert deliveries() == before

    run(test)
