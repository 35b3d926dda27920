"""The machine that counts a stream's bytes, fed by hand and against a plain model."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.node.streams.spill_buffer import SpillBuffer
from reknit.outcome import Code
from reknit.protocol.streams.inputs import (
    AbandonStream,
    AbortDownstream,
    ChunkReceived,
    DiscardBefore,
    Effect,
    ForgetStream,
    GrantUpstream,
    Input,
    PathAssigned,
    PathCredit,
    PathReleased,
    SendChunk,
    StorageFailed,
    StoreChunk,
    StreamAborted,
    StreamPinned,
    StreamSettled,
    StreamStarted,
    UpstreamGone,
)
from reknit.protocol.streams.streams import StreamMachine

S = b"s" * 16
WINDOW = 100


def begun(is_resent: bool = True) -> StreamMachine:
    streams = StreamMachine(WINDOW, bytes_max=1000)
    streams.receive(StreamStarted(S, is_resent), "up", 0.0)
    assert streams.take_effects() == [GrantUpstream("up", S, WINDOW)]
    return streams


def tell(streams: StreamMachine, *messages: tuple[object, str]) -> list[Effect]:
    for message, peer in messages:
        streams.receive(message, peer, 0.0)  # type: ignore[arg-type]
    return streams.take_effects()


def came(offset: int, size: int, is_last: bool = False) -> tuple[ChunkReceived, str]:
    return ChunkReceived(S, offset, bytes(size), is_last), "up"


def test_nothing_goes_along_a_path_that_has_not_asked() -> None:
    streams = begun()
    assert tell(streams, (PathAssigned(S), "p"), came(0, 10)) == [StoreChunk(S, 0, bytes(10))]
    assert tell(streams, (PathCredit(S, 50), "q")) == [], "somebody else asks"
    assert tell(streams, (PathCredit(S, 50), "p")) == [SendChunk("p", S, 0, 10, False)]
    assert tell(streams, came(10, 60)) == [
        StoreChunk(S, 10, bytes(60)),
        SendChunk("p", S, 10, 50, False),
        GrantUpstream("up", S, 150),
    ]


def test_the_end_is_sent_after_all_bytes_also_of_an_empty_stream() -> None:
    streams = begun()
    assert tell(streams, came(0, 0, is_last=True), (PathAssigned(S), "p")) == []
    assert tell(streams, (PathCredit(S, 1), "p")) == [SendChunk("p", S, 0, 0, True)]
    assert streams.is_sent(S)
    assert tell(streams, (PathCredit(S, 9), "p")) == [], "once"
    streams = begun()
    assert tell(streams, (PathAssigned(S), "p"), (PathCredit(S, 9), "p"), came(0, 10, is_last=True)) == [
        StoreChunk(S, 0, bytes(10)),
        SendChunk("p", S, 0, 9, False),
    ]
    assert not streams.is_sent(S)
    assert tell(streams, (PathCredit(S, 99), "p")) == [SendChunk("p", S, 9, 10, True)]


def test_the_next_path_gets_it_from_its_start() -> None:
    streams = begun()
    tell(streams, (PathAssigned(S), "p"), (PathCredit(S, 99), "p"), came(0, 60))
    assert tell(streams, (PathReleased(S), ""), came(60, 10)) == [StoreChunk(S, 60, bytes(10))]
    assert tell(streams, (PathAssigned(S), "q"), (PathCredit(S, 99), "p")) == [], (
        "the first has nothing to say any more"
    )
    assert tell(streams, (PathCredit(S, 99), "q")) == [SendChunk("q", S, 0, 70, False)]


@pytest.mark.parametrize("is_resent", [False, True])
def test_only_bytes_that_may_be_resent_are_stored(is_resent: bool) -> None:
    streams = begun(is_resent)
    effects = tell(streams, (PathAssigned(S), "p"), (PathCredit(S, 30), "p"), came(0, 40))
    assert (DiscardBefore(S, 30) in effects) is not is_resent
    assert (DiscardBefore(S, 30) in tell(streams, (StreamPinned(S), ""))) is is_resent
    assert DiscardBefore(S, 40) in tell(streams, (PathCredit(S, 99), "p")), "pinned by now"


@pytest.mark.parametrize(
    ("piece", "text"),
    [(came(5, 1), "at offset 5, not at 0"), (came(0, 101), "only 100 were granted")],
)
def test_an_invalid_chunk_ends_the_stream(piece: tuple[ChunkReceived, str], text: str) -> None:
    streams = begun()
    tell(streams, (PathAssigned(S), "p"))
    cut, give_up, forget = tell(streams, piece)
    assert isinstance(cut, AbortDownstream)
    assert isinstance(give_up, AbandonStream)
    assert text in cut.text
    assert (give_up.up, give_up.code, forget) == ("up", Code.INVALID_ARGUMENT, ForgetStream(S))
    assert len(streams) == 0
    assert tell(streams, came(0, 1)) == [], "what was on its way comes to nothing"


def test_pieces_after_the_last_or_over_the_limit_end_it_too() -> None:
    streams = begun()
    tell(streams, came(0, 1, is_last=True))
    [give_up, _] = tell(streams, came(1, 1))
    assert isinstance(give_up, AbandonStream)
    assert give_up.text == "a chunk arrived after the last one"
    streams = StreamMachine(WINDOW, bytes_max=50)
    [_, give_up, _] = tell(streams, (StreamStarted(S, True), "up"), came(0, 51))
    assert isinstance(give_up, AbandonStream)
    assert give_up.code == Code.RESOURCE_EXHAUSTED


def test_an_abort_counts_from_upstream_only() -> None:
    streams = begun()
    assert (
        tell(
            streams, (PathAssigned(S), "p"), (StreamAborted(S, "no"), "p"), (StreamAborted(S, "no"), "other")
        )
        == []
    )
    assert tell(streams, (StreamAborted(S, "no"), "up")) == [
        AbortDownstream("p", S, "no"),
        AbandonStream("up", S, 0, "no"),
        ForgetStream(S),
    ]


def test_an_abort_of_a_whole_stream_comes_too_late() -> None:
    streams = begun()
    tell(streams, came(0, 5, is_last=True), (PathAssigned(S), "p"))
    assert tell(streams, (StreamAborted(S, "no"), "up")) == []
    assert tell(streams, (PathCredit(S, 9), "p")) == [SendChunk("p", S, 0, 5, True)]


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("state", ["arriving", "whole", "sent"])
def test_an_upstream_that_is_gone(is_final: bool, state: str) -> None:
    streams = begun()
    room = 99 if state == "sent" else 5
    tell(
        streams, (PathAssigned(S), "p"), (PathCredit(S, room), "p"), came(0, 10, is_last=state != "arriving")
    )
    effects = tell(streams, (UpstreamGone(is_final), "elsewhere"), (UpstreamGone(is_final), "up"))
    is_cut = any(isinstance(effect, AbortDownstream) for effect in effects)
    assert is_cut is (state == "arriving" or (is_final and state == "whole"))
    assert (len(streams) == 0) is (is_final or state == "arriving")


def test_a_stream_that_can_not_be_stored_is_abandoned_with_the_reason() -> None:
    streams = begun()
    tell(streams, came(0, 10))
    assert tell(streams, (StorageFailed(S, Code.RESOURCE_EXHAUSTED, "disk full"), "")) == [
        AbandonStream("up", S, Code.RESOURCE_EXHAUSTED, "disk full"),
        ForgetStream(S),
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
    """One stream: an upstream that sends as far as it may, the machine with its spill buffer, and each path."""

    def __init__(self, is_resent: bool, cap: int) -> None:
        self.streams, self.buffer, self.cap = StreamMachine(WINDOW, 1 << 20), SpillBuffer(cap), cap
        self.content = Random(7).randbytes(10_000)
        self.may_hand, self.is_resent = True, is_resent
        self.came_bytes = self.given_bytes = self.most_sent = 0
        self.path = self.room = 0
        self.read: dict[str, bytes] = {}
        """The bytes that each path got."""
        self.ended: set[str] = set()
        self.tell(StreamStarted(S, is_resent), "up")

    def tell(self, message: Input, peer: str = "") -> None:
        self.streams.receive(message, peer, 0.0)
        for effect in self.streams.take_effects():
            self._perform(effect)
        assert self.buffer.held_bytes <= self.cap
        assert self.given_bytes <= self.most_sent + WINDOW
        assert all(self.content.startswith(data) for data in self.read.values())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StoreChunk(data=data):
                self.buffer.put(S, data)
            case DiscardBefore(stop=stop):
                self.buffer.drop(S, stop)
            case SendChunk(path=to, start=start, stop=stop, is_last=is_last):
                assert len(self.read[str(to)]) == start
                self.read[str(to)] += self.buffer.read(S, start, stop)
                self.most_sent = max(self.most_sent, stop)
                self.ended |= {str(to)} if is_last else set()
            case GrantUpstream(total=total):
                self.given_bytes = total
            case ForgetStream():
                self.buffer.forget(S)

    def come(self, size: int, is_last: bool = False) -> None:
        """Upstream sends more, as far as it may."""
        at = self.came_bytes
        data = self.content[at : at + min(size, self.given_bytes - at)]
        self.came_bytes += len(data)
        self.tell(ChunkReceived(S, at, data, is_last), "up")

    def hand(self) -> None:
        """The stream goes to the next path."""
        self.path, self.room, self.may_hand = self.path + 1, 0, self.is_resent
        self.read[str(self.path)] = b""
        self.tell(PathReleased(S))
        self.tell(PathAssigned(S), str(self.path))

    def give_room(self, size: int) -> None:
        """The path takes more."""
        self.room += size
        self.tell(PathCredit(S, self.room), str(self.path))

    def step(self, op: str, number: int) -> None:
        """One step, if it is possible."""
        match op:
            case "come":
                self.come(number)
            case "room" if self.path:
                self.give_room(number)
            case "hand" if self.may_hand:
                self.hand()
            case "pin" if self.path:
                self.may_hand = self.is_resent = False
                self.tell(StreamPinned(S))


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
    world.tell(StreamSettled(S))
    assert (len(world.streams), world.buffer.held_bytes, world.buffer.spilled_bytes) == (0, 0, 0)
