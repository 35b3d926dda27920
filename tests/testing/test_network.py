"""A faulty network, whose faults are those of real ones."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import ConnectionEnd, Network


class User:
    """Records what it is told."""

    def __init__(self) -> None:
        self.ends: list[ConnectionEnd] = []
        self.data = b""
        self.blocks: list[bool] = []
        self.losses = 0

    def opened(self, end: ConnectionEnd) -> None:
        self.ends.append(end)

    def received(self, end: ConnectionEnd, data: bytes) -> None:
        self.data += data

    def blocked(self, end: ConnectionEnd, is_blocked: bool) -> None:
        self.blocks.append(is_blocked)

    def lost(self, end: ConnectionEnd) -> None:
        self.losses += 1


class Pair:
    """A client and a server with a connection between them."""

    def __init__(self, plan: FaultPlan) -> None:
        self.clock = Clock()
        self.network = Network(self.clock, plan, Random(plan.seed))
        self.client, self.server = User(), User()
        self.network.listen("server", self.server)
        assert self.network.connect("client", "server", self.client)
        self.end = self.client.ends[0]


SPLIT = FaultPlan(seed=1, split_share=0.5, delay_s_max=0.3)


def test_bytes_arrive_in_order() -> None:
    pair = Pair(SPLIT)
    for byte in range(100):
        pair.end.send(bytes([byte, byte]))
    pair.clock.run(10.0)
    assert pair.server.data == b"".join(bytes([byte, byte]) for byte in range(100))


@given(
    st.integers(0, 10_000), st.lists(st.sampled_from(["send", "wait", "part", "heal", "cut"]), max_size=40)
)
def test_received_bytes_are_always_a_prefix_of_the_sent_ones(seed: int, acts: list[str]) -> None:
    pair = Pair(FaultPlan(seed=seed, split_share=0.5, delay_s_max=0.3, notice_s_max=0.5))
    sent = b""
    for number, act in enumerate(acts):
        match act:
            case "send":
                data = bytes([number]) * 3
                sent += data
                pair.end.send(data)
            case "wait":
                pair.clock.run(pair.clock.now + 0.2)
            case "part":
                pair.network.partition({"client"}, {"server"}, one_way=bool(number % 2))
            case "heal":
                pair.network.heal()
            case "cut":
                pair.network.cut_any()
    pair.network.heal()
    pair.clock.run(100.0)
    assert sent.startswith(pair.server.data)
    if not pair.client.losses:
        assert sent == pair.server.data


def test_both_sides_of_a_cut_connection_are_told_once() -> None:
    pair = Pair(FaultPlan(seed=1))
    pair.network.cut_any()
    pair.clock.run(10.0)
    assert (pair.client.losses, pair.server.losses) == (1, 1)
    assert pair.network.cut_any() == "nothing"


def test_side_that_closes_is_not_told_and_receives_no_more() -> None:
    pair = Pair(FaultPlan(seed=1))
    pair.server.ends[0].send(b"late")
    pair.end.close()
    pair.clock.run(10.0)
    assert (pair.client.losses, pair.server.losses) == (0, 1)
    assert pair.client.data == b""


def test_short_partition_only_delays() -> None:
    pair = Pair(FaultPlan(seed=1, notice_s_max=5.0))
    pair.network.partition({"client"}, {"server"}, one_way=False)
    pair.end.send(b"hello")
    pair.clock.run(0.05)
    assert pair.server.data == b""
    pair.network.heal()
    pair.clock.run(10.0)
    assert pair.server.data == b"hello"
    assert pair.client.losses == 0


def test_long_partition_ends_the_connection() -> None:
    pair = Pair(FaultPlan(seed=1))
    pair.network.partition({"client"}, {"server"}, one_way=False)
    pair.clock.run(10.0)
    assert (pair.client.losses, pair.server.losses) == (1, 1)
    assert not pair.network.connect("client", "server", pair.client)


def test_crashed_host_cannot_be_reached() -> None:
    pair = Pair(FaultPlan(seed=1))
    pair.network.crash("server")
    assert not pair.network.connect("client", "server", pair.client)
    pair.clock.run(10.0)
    assert (pair.client.losses, pair.server.losses) == (1, 0)


def test_sender_is_told_when_the_buffer_is_full_and_has_room_again() -> None:
    pair = Pair(FaultPlan(seed=1, buffer_bytes=10))
    for _ in range(5):
        pair.end.send(b"12345")
    pair.clock.run(10.0)
    assert pair.client.blocks == [True, False]


@pytest.mark.parametrize(
    ("knobs", "arrivals"),
    [({"loss_share": 1.0}, 0), ({"duplicate_share": 1.0}, 2), ({}, 1)],
    ids=["lost", "twice", "once"],
)
def test_datagrams_are_lost_or_arrive_twice(knobs: dict[str, float], arrivals: int) -> None:
    clock = Clock()
    network = Network(clock, FaultPlan(seed=1, **knobs), Random(1))  # type: ignore[arg-type]
    seen: list[int] = []
    network.send_datagram("a", "b", lambda: seen.append(1))
    clock.run(1.0)
    assert len(seen) == arrivals


def test_datagrams_overtake_each_other() -> None:
    clock = Clock()
    network = Network(clock, FaultPlan(seed=1, reorder_share=0.5), Random(1))
    seen: list[int] = []
    for number in range(20):
        network.send_datagram("a", "b", lambda number=number: seen.append(number))  # type: ignore[misc]
    clock.run(1.0)
    assert sorted(seen) == list(range(20)) != seen


class Twice:
    """Delivers each datagram after one and after two seconds."""

    def delays_s(self, rng: Random) -> list[float]:
        return [1.0, 2.0]


def test_datagrams_have_the_faults_that_a_test_states() -> None:
    clock = Clock()
    network = Network(clock, FaultPlan(seed=1, loss_share=1.0), Random(1), datagram_faults=Twice())
    seen: list[float] = []
    network.send_datagram("a", "b", lambda: seen.append(clock.now))
    clock.run(5.0)
    assert seen == [1.0, 2.0]


def test_partition_stops_the_datagrams_of_its_direction_until_it_heals() -> None:
    clock = Clock()
    network = Network(clock, FaultPlan(seed=1), Random(1))
    seen: list[str] = []
    network.partition({"a"}, {"b"}, one_way=True)
    network.send_datagram("a", "b", lambda: seen.append("lost"))
    network.send_datagram("b", "a", lambda: seen.append("back"))
    clock.run(1.0)
    network.heal()
    network.send_datagram("a", "b", lambda: seen.append("healed"))
    clock.run(2.0)
    assert seen == ["back", "healed"]


def test_cut_link_loses_what_is_in_flight_and_another_link_does_not() -> None:
    clock = Clock()
    network = Network(clock, FaultPlan(seed=1), Random(1))
    cut, whole = network.open_link(), network.open_link()
    seen: list[str] = []
    for name, link in (("cut", cut), ("whole", whole)):
        link.send("a", "b", lambda name=name: seen.append(name))  # type: ignore[misc]
    cut.cut()
    cut.send("a", "b", lambda: seen.append("after"))
    clock.run(1.0)
    assert seen == ["whole"]
