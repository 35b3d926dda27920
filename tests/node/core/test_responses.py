"""A node's own responses in virtual time, through crashes: each request is answered, and by the node once at most."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reknit.batch import Batch
from reknit.config import Config
from reknit.envelope.attributes import Attributes, Kind, response_to
from reknit.envelope.columns import fields_of, read_attributes
from reknit.envelope.ids import make_id
from reknit.frame import Buffer
from reknit.node.core.core import Core
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.store.memory import SimJournal
from reknit.wire.codec import Frames
from reknit.wire.messages import Start, Subscribe
from tests.envelope.samples import SOUND

ZERO_US = 1_700_000_000_000_000
REQUEST = SOUND[Kind.REQUEST]
ANSWERS = REQUEST.source.topic
SERVER, CLIENT = 1, 2


class World:
    """One node's core with a journal that can crash, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.journal = SimJournal(now_us=self.now_us)
        self._seqs = {"ask": 0, "answer": 0}
        self.start()

    def now_us(self) -> int:
        return ZERO_US + int(self.now * 1e6)

    def start(self) -> None:
        parts = ("node", "epoch", self.journal, Config(), self, Random(1))
        self.core = Core(*parts, zero_us=ZERO_US, now_us=self.now_us)
        self.core.joined(CLIENT, self.now)

    def crash(self) -> None:
        self.journal = self.journal.crash()
        self.start()

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Nobody listens here."""

    def commit(self, number: int, sync: bool) -> None:
        self.core.durable(number, self.journal.commit(sync), self.now)

    def run(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.core.tick(self.now)
        for _ in range(5):
            self.core.run(self.now)

    def serve(self, pattern: str = REQUEST.topic) -> None:
        self.core.joined(SERVER, self.now)
        self.core.receive(Subscribe(1, pattern, "", Start(), 1 << 30), SERVER, self.now)
        self.run()

    def ask(self, number: int, ttl_ms: int = 1000) -> Attributes:
        made = make_id(self.now_us() // 1000, number)
        request = structs.replace(REQUEST, id=made, ttl_ms=ttl_ms)
        self._give(request, b"a" * 16, "ask")
        return request

    def answer(self, request: Attributes) -> None:
        response = response_to(request, make_id(self.now_us() // 1000, 99))
        self._give(response, b"b" * 16, "answer")

    def _give(self, attributes: Attributes, source: bytes, which: str) -> None:
        self._seqs[which] += 1
        topic, seq = attributes.topic, self._seqs[which]
        batch = Batch.build(source, topic, seq, [b"x"], self.now_us(), **fields_of([attributes]))
        self.core.receive(Frames(bytes(batch.data), [batch.head]), CLIENT, self.now)
        self.run()

    def bring_back(self) -> None:
        """A neighbour sends all responses to where they came from."""
        for batch in self.batches():
            self.core.receive(Frames(bytes(batch.data), [batch.head]), CLIENT, self.now)
            self.run()

    def batches(self) -> list[Batch]:
        """The responses in the journal."""
        found: list[Batch] = []
        position = self.journal.start
        while position < self.journal.end:
            run = self.journal.read(position)
            found += [
                Batch.parse(run.cut(index, index + 1))
                for index, entry in enumerate(run.entries)
                if entry.head.topic == ANSWERS
            ]
            position = run.next_position
        return found

    def responses(self) -> list[tuple[object, Code | None]]:
        """(the id of the request, the code) of every response in the journal."""
        return [(one.reqid, one.commstatus) for batch in self.batches() for one in read_attributes(batch)]


@pytest.fixture
def world() -> World:
    return World()


def test_nobody_serves(world: World) -> None:
    request = world.ask(1)
    world.run(0.9)
    assert world.responses() == []
    world.run(0.2)
    assert world.responses() == [(request.id, Code.UNAVAILABLE)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_response_that_comes_back_is_not_stored_again(world: World, is_restarted: bool) -> None:
    """The intake did not know the seqs that the node itself had written (fabric seed 81350, on an earlier tree)."""
    first = world.ask(1)
    world.run(2.0)
    if is_restarted:
        world.crash()
    world.bring_back()
    assert world.responses() == [(first.id, Code.UNAVAILABLE)]
    second = world.ask(2)
    world.run(2.0)
    assert world.responses() == [(first.id, Code.UNAVAILABLE), (second.id, Code.UNAVAILABLE)]


def test_somebody_serves_and_is_silent(world: World) -> None:
    world.serve()
    request = world.ask(1)
    world.run(2.0)
    assert world.responses() == [(request.id, Code.DEADLINE_EXCEEDED)]


def test_somebody_looks_on(world: World) -> None:
    world.serve("up/**")
    request = world.ask(1)
    world.run(2.0)
    assert world.responses() == [(request.id, Code.UNAVAILABLE)]


def test_a_response_came(world: World) -> None:
    request = world.ask(1)
    world.answer(request)
    world.run(2.0)
    assert world.responses() == [(request.id, None)]


def test_after_a_crash_what_is_open_is_known_again(world: World) -> None:
    answered, still_open = world.ask(1), world.ask(2)
    world.answer(answered)
    world.crash()
    world.run(0.5)
    assert world.responses() == [(answered.id, None)]
    world.run(2.0)
    assert world.responses() == [(answered.id, None), (still_open.id, Code.DEADLINE_EXCEEDED)]


def test_after_a_crash_what_was_answered_is_not_answered_again(world: World) -> None:
    request = world.ask(1)
    world.run(2.0)
    world.crash()
    world.run(5.0)
    assert world.responses() == [(request.id, Code.UNAVAILABLE)]


@given(st.lists(st.tuples(st.sampled_from("aaarwwcs"), st.integers(0, 3)), max_size=30))
def test_whatever_happens_every_request_is_answered_and_never_twice_by_the_node(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    asked: list[Attributes] = []
    is_served = False
    for kind, number in steps:
        match kind:
            case "a":
                asked.append(world.ask(len(asked), 500 * (number + 1)))
            case "r" if asked:
                request = asked[number % len(asked)]
                if not any(id_ == request.id for id_, _ in world.responses()):
                    world.answer(request)
            case "w":
                world.run(0.4 * number)
            case "c":
                world.crash()
                is_served = False
            case "s" if not is_served:
                is_served = True
                world.serve()
    world.run(10.0)
    ids = [id_ for id_, _ in world.responses()]
    assert sorted(map(str, ids)) == sorted(str(request.id) for request in asked)
