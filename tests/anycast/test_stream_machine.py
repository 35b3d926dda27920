"""The machine that counts a stream's bytes, fed by hand and against a plain model; and the buffer that holds them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.event import FLAG_STREAM
from reknit.node.streams.spill_buffer import SpillBuffer
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.inputs import Attach, Detach, Hand, Offered, Resolve, Rows, Withdraw
from reknit.protocol.anycast.machine import Anycast
from reknit.protocol.anycast.state import HERE
from reknit.protocol.routing.routes import Routes
from reknit.protocol.streams.streams import (
    Aborted,
    Begun,
    Broken,
    Came,
    Convey,
    Cut,
    Drop,
    Effect,
    Ended,
    Forget,
    GiveRoom,
    GiveUp,
    Gone,
    Handed,
    Input,
    Keep,
    Left,
    Pinned,
    Roomy,
    Streams,
)
from reknit.topic import Pattern
from reknit.wire.messages import Row

S = b"s" * 16
WINDOW = 100


def begun(is_resent: bool = True) -> Streams:
    streams = Streams(WINDOW, bytes_max=1000)
    streams.receive(Begun(S, is_resent), "up", 0.0)
    assert streams.take_effects() == [GiveRoom("up", S, WINDOW)]
    return streams


def tell(streams: Streams, *messages: tuple[object, str]) -> list[Effect]:
    for message, peer in messages:
        streams.receive(message, peer, 0.0)  # type: ignore[arg-type]
    return streams.take_effects()


def came(offset: int, size: int, is_last: bool = False) -> tuple[Came, str]:
    return Came(S, offset, bytes(size), is_last), "up"


def test_nothing_goes_along_a_path_that_has_not_asked() -> None:
    streams = begun()
    assert tell(streams, (Handed(S), "p"), came(0, 10)) == [Keep(S, 0, bytes(10))]
    assert tell(streams, (Roomy(S, 50), "q")) == [], "somebody else asks"
    assert tell(streams, (Roomy(S, 50), "p")) == [Convey("p", S, 0, 10, False)]
    assert tell(streams, came(10, 60)) == [
        Keep(S, 10, bytes(60)),
        Convey("p", S, 10, 50, False),
        GiveRoom("up", S, 150),
    ]


def test_the_end_goes_once_all_of_it_went_also_of_an_empty_one() -> None:
    streams = begun()
    assert tell(streams, came(0, 0, is_last=True), (Handed(S), "p")) == []
    assert tell(streams, (Roomy(S, 1), "p")) == [Convey("p", S, 0, 0, True)]
    assert streams.is_sent(S)
    assert tell(streams, (Roomy(S, 9), "p")) == [], "once"
    streams = begun()
    assert tell(streams, (Handed(S), "p"), (Roomy(S, 9), "p"), came(0, 10, is_last=True)) == [
        Keep(S, 0, bytes(10)),
        Convey("p", S, 0, 9, False),
    ]
    assert not streams.is_sent(S)
    assert tell(streams, (Roomy(S, 99), "p")) == [Convey("p", S, 9, 10, True)]


def test_the_next_path_gets_it_from_its_start() -> None:
    streams = begun()
    tell(streams, (Handed(S), "p"), (Roomy(S, 99), "p"), came(0, 60))
    assert tell(streams, (Left(S), ""), came(60, 10)) == [Keep(S, 60, bytes(10))]
    assert tell(streams, (Handed(S), "q"), (Roomy(S, 99), "p")) == [], "the first has nothing to say any more"
    assert tell(streams, (Roomy(S, 99), "q")) == [Convey("q", S, 0, 70, False)]


@pytest.mark.parametrize("is_resent", [False, True])
def test_only_what_may_go_again_is_kept(is_resent: bool) -> None:
    streams = begun(is_resent)
    effects = tell(streams, (Handed(S), "p"), (Roomy(S, 30), "p"), came(0, 40))
    assert (Drop(S, 30) in effects) is not is_resent
    assert (Drop(S, 30) in tell(streams, (Pinned(S), ""))) is is_resent
    assert Drop(S, 40) in tell(streams, (Roomy(S, 99), "p")), "pinned by now"


@pytest.mark.parametrize(
    ("piece", "text"),
    [(came(5, 1), "at 5, not at 0"), (came(0, 101), "room up to 100")],
)
def test_a_piece_that_is_none_ends_the_stream(piece: tuple[Came, str], text: str) -> None:
    streams = begun()
    tell(streams, (Handed(S), "p"))
    cut, give_up, forget = tell(streams, piece)
    assert isinstance(cut, Cut)
    assert isinstance(give_up, GiveUp)
    assert text in cut.text
    assert (give_up.up, give_up.code, forget) == ("up", Code.INVALID_ARGUMENT, Forget(S))
    assert len(streams) == 0
    assert tell(streams, came(0, 1)) == [], "what was on its way comes to nothing"


def test_pieces_after_the_last_or_over_the_limit_end_it_too() -> None:
    streams = begun()
    tell(streams, came(0, 1, is_last=True))
    [give_up, _] = tell(streams, came(1, 1))
    assert isinstance(give_up, GiveUp)
    assert give_up.text == "a piece came after the last"
    streams = Streams(WINDOW, bytes_max=50)
    [_, give_up, _] = tell(streams, (Begun(S, True), "up"), came(0, 51))
    assert isinstance(give_up, GiveUp)
    assert give_up.code == Code.RESOURCE_EXHAUSTED


def test_an_abort_counts_from_upstream_only() -> None:
    streams = begun()
    assert tell(streams, (Handed(S), "p"), (Aborted(S, "no"), "p"), (Aborted(S, "no"), "other")) == []
    assert tell(streams, (Aborted(S, "no"), "up")) == [Cut("p", S, "no"), GiveUp("up", S, 0, "no"), Forget(S)]


def test_an_abort_of_what_is_whole_comes_too_late() -> None:
    streams = begun()
    tell(streams, came(0, 5, is_last=True), (Handed(S), "p"))
    assert tell(streams, (Aborted(S, "no"), "up")) == []
    assert tell(streams, (Roomy(S, 9), "p")) == [Convey("p", S, 0, 5, True)]


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("state", ["arriving", "whole", "sent"])
def test_an_upstream_that_is_gone(is_final: bool, state: str) -> None:
    streams = begun()
    room = 99 if state == "sent" else 5
    tell(streams, (Handed(S), "p"), (Roomy(S, room), "p"), came(0, 10, is_last=state != "arriving"))
    effects = tell(streams, (Gone(is_final), "elsewhere"), (Gone(is_final), "up"))
    is_cut = any(isinstance(effect, Cut) for effect in effects)
    assert is_cut is (state == "arriving" or (is_final and state == "whole"))
    assert (len(streams) == 0) is (is_final or state == "arriving")


def test_what_can_not_be_kept_is_given_up_with_the_reason() -> None:
    streams = begun()
    tell(streams, came(0, 10))
    assert tell(streams, (Broken(S, Code.RESOURCE_EXHAUSTED, "disk full"), "")) == [
        GiveUp("up", S, Code.RESOURCE_EXHAUSTED, "disk full"),
        Forget(S),
    ]


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 70)),
        st.tuples(st.just("room"), st.integers(1, 150)),
        st.tuples(st.just("hand"), st.just(0)),
        st.tuples(st.just("pin"), st.just(0)),
    ),
    max_size=60,
)


class World:
    """A stream on its way: upstream that sends what there is room for, the machine with its buffer, and each path."""

    def __init__(self, is_resent: bool, cap: int) -> None:
        self.streams, self.buffer, self.cap = Streams(WINDOW, 1 << 20), SpillBuffer(cap), cap
        self.content = Random(7).randbytes(10_000)
        self.may_hand, self.is_resent = True, is_resent
        self.came_bytes = self.given_bytes = self.most_sent = 0
        self.path = self.room = 0
        self.read: dict[str, bytes] = {}
        """What each path got."""
        self.ended: set[str] = set()
        self.tell(Begun(S, is_resent), "up")

    def tell(self, message: Input, peer: str = "") -> None:
        self.streams.receive(message, peer, 0.0)
        for effect in self.streams.take_effects():
            self._perform(effect)
        assert self.buffer.held_bytes <= self.cap
        assert self.given_bytes <= self.most_sent + WINDOW
        assert all(self.content.startswith(data) for data in self.read.values())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Keep(data=data):
                self.buffer.put(S, data)
            case Drop(stop=stop):
                self.buffer.drop(S, stop)
            case Convey(path=to, start=start, stop=stop, is_last=is_last):
                assert len(self.read[str(to)]) == start
                self.read[str(to)] += self.buffer.read(S, start, stop)
                self.most_sent = max(self.most_sent, stop)
                self.ended |= {str(to)} if is_last else set()
            case GiveRoom(total=total):
                self.given_bytes = total
            case Forget():
                self.buffer.forget(S)

    def come(self, size: int, is_last: bool = False) -> None:
        """Upstream sends more, as far as it may."""
        at = self.came_bytes
        data = self.content[at : at + min(size, self.given_bytes - at)]
        self.came_bytes += len(data)
        self.tell(Came(S, at, data, is_last), "up")

    def hand(self) -> None:
        """It goes to the next path."""
        self.path, self.room, self.may_hand = self.path + 1, 0, self.is_resent
        self.read[str(self.path)] = b""
        self.tell(Left(S))
        self.tell(Handed(S), str(self.path))

    def give_room(self, size: int) -> None:
        """The path takes more."""
        self.room += size
        self.tell(Roomy(S, self.room), str(self.path))

    def step(self, op: str, number: int) -> None:
        """One thing happens, if it can."""
        match op:
            case "come":
                self.come(number)
            case "room" if self.path:
                self.give_room(number)
            case "hand" if self.may_hand:
                self.hand()
            case "pin" if self.path:
                self.may_hand = self.is_resent = False
                self.tell(Pinned(S))


@settings(max_examples=200, deadline=None)
@given(ops=OPS, is_resent=st.booleans(), cap=st.integers(0, 400))
def test_every_path_gets_the_stream_from_its_start_and_the_last_one_all_of_it(
    ops: list[tuple[str, int]], is_resent: bool, cap: int
) -> None:
    world = World(is_resent, cap)
    for op, number in ops:
        world.step(op, number)
    if not world.path:
        world.hand()
    world.give_room(1 << 20)
    world.come(50, is_last=True)
    assert world.read[str(world.path)] == world.content[: world.came_bytes]
    assert world.ended == {str(world.path)}, "nobody else ever saw an end"
    world.tell(Ended(S))
    assert (len(world.streams), world.buffer.held_bytes, world.buffer.spilled_bytes) == (0, 0, 0)


@settings(max_examples=200, deadline=None)
@given(
    ops=st.lists(
        st.tuples(st.sampled_from(["put", "drop"]), st.integers(0, 1), st.integers(1, 50)), max_size=80
    ),
    cap=st.integers(0, 300),
)
def test_a_buffer_holds_what_was_put_there_and_no_more_than_the_cap_of_it_in_memory(
    ops: list[tuple[str, int, int]], cap: int
) -> None:
    buffer = SpillBuffer(cap)
    model = {b"a": b"", b"b": b""}
    dropped = {b"a": 0, b"b": 0}
    rng = Random(1)
    try:
        for op, which, size in ops:
            source = (b"a", b"b")[which]
            if op == "put":
                data = rng.randbytes(size)
                buffer.put(source, data)
                model[source] += data
            elif model[source]:
                dropped[source] = min(len(model[source]), dropped[source] + size)
                buffer.drop(source, dropped[source])
            for one, whole in model.items():
                assert buffer.read(one, dropped[one], len(whole)) == whole[dropped[one] :]
            left = sum(len(model[one]) - dropped[one] for one in model)
            assert buffer.held_bytes <= cap
            assert buffer.held_bytes + buffer.spilled_bytes == left
    finally:
        buffer.close()


def test_a_file_is_left_behind_by_nobody(tmp_path: Path) -> None:
    buffer = SpillBuffer(0, tmp_path)
    buffer.put(S, b"abc")
    assert buffer.spilled_bytes == 3
    assert list(tmp_path.iterdir()) == [], "it has no name"
    buffer.close()


# -- where a stream goes


def stub(source: bytes = S) -> Batch:
    return Batch.build(source, "films", 1, [b""], time_us=0, flags=FLAG_STREAM)


def anycast(*takers: bool) -> Anycast:
    machine = Anycast("a", Routes("a", 1), Random(1))
    for number, takes in enumerate(takers):
        machine.receive(Attach(Pattern("films"), "events", 1, f"p{number}", takes), number, 0.0)
    return machine


def test_a_stream_goes_to_those_who_take_streams_only() -> None:
    machine = anycast(False, True, False, True)
    tried = []
    machine.receive(Offered(stub(), "balanced", resend=True), HERE, 0.0)
    for _ in range(2):
        [hand] = [effect for effect in machine.take_effects() if isinstance(effect, Hand)]
        tried.append(hand.key)
        machine.receive(Rows([Row("films", S, 1, 2, Outcome.RELEASED)]), hand.key, 0.0)
    assert tried == [1, 3]
    [resolve] = [effect for effect in machine.take_effects() if isinstance(effect, Resolve)]
    assert (resolve.fate.outcome, machine.records()) == (Outcome.RELEASED, 0)


def test_a_stream_that_waits_lets_plain_events_pass() -> None:
    machine = anycast(False, True)
    for number in range(2):
        machine.receive(Offered(stub(bytes([number]) * 16), "balanced"), HERE, 0.0)
    plain = Batch.build(b"p" * 16, "films", 1, [b"x"], time_us=0)
    machine.receive(Offered(plain, "balanced"), HERE, 0.0)
    hands = [effect.key for effect in machine.take_effects() if isinstance(effect, Hand)]
    assert (hands, machine.waiting()) == ([1, 0], 1)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_what_is_withdrawn_is_nowhere_any_more(is_waiting: bool) -> None:
    machine = anycast(True)
    if is_waiting:
        machine.receive(Offered(stub(b"o" * 16), "balanced"), HERE, 0.0)
    machine.receive(Offered(stub(), "balanced", resend=True), HERE, 0.0)
    machine.take_effects()
    machine.receive(Withdraw("films", S, "given up"), "", 1.0)
    assert not [effect for effect in machine.take_effects() if isinstance(effect, Resolve)]
    machine.receive(Rows([Row("films", S, 1, 2, Outcome.ACCEPTED)]), 0, 1.0)
    machine.receive(Detach(is_clean=True), 0, 1.0)
    machine.take_effects()
    assert (machine.records(), machine.held_bytes) == (0, 0)
