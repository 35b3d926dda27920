"""The machine of links: which line counts, what each message leads to, and what a bad neighbour is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reknit.batch import Batch
from reknit.config import LinkSettings
from reknit.entries import Removed
from reknit.event import FLAG_STREAM
from reknit.ledger import Ledger
from reknit.node.core.journal_tail import JournalTail
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.inputs import (
    ForwardBatch,
    ForwardToNeighbour,
    NeighbourDown,
    NeighbourOutcomes,
    NeighbourRecorded,
    NeighbourUp,
    OfferEvents,
    ReturnOutcome,
    RoutesChanged,
    Stall,
)
from reknit.protocol.links.forwarding_table import ForwardingTable, Origins
from reknit.protocol.links.inputs import (
    BatchStored,
    CloseLine,
    DismissLine,
    Effect,
    EventsLost,
    EventsRemoved,
    LineBlocked,
    LineLost,
    LineOpened,
    LossesRecorded,
    OpenStore,
    Pass,
    RecordLosses,
    SaveLinks,
    SendFrames,
    SendOnLine,
    StoreBatches,
    StoreOpened,
)
from reknit.protocol.links.machine import LinkMachine
from reknit.protocol.links.memory import LinkMemory
from reknit.protocol.links.route_review import REVIEW_S
from reknit.protocol.machine import JOURNAL, MadeDurable
from reknit.protocol.routing.routes import Interests, Routes, SendToNeighbour
from reknit.protocol.streams.inputs import OfferStream, UpstreamGone
from reknit.store.memory import MemoryJournal
from reknit.wire.codec import Decoder, Frames
from reknit.wire.links import (
    Announce,
    Beat,
    Carry,
    Forward,
    Got,
    Link,
    LinkState,
    Missed,
    Pull,
    Recorded,
    Return,
    Returned,
)
from reknit.wire.outcomes import RangeOutcome
from reknit.wire.streams import Room

SOURCE, OTHER = b"s" * 16, b"o" * 16
OURS, THEIRS, SPARE = ("link", 1), 11, 12
"""A line that this node opened, and two that neighbours opened."""


def hello(node: str = "b", is_edge: bool = False) -> Link:
    return Link(node, 1, 1, is_edge, ["tcp://b:1"], f"{node}'s")


class Node:
    """The links of node a. `effects` are those of the last input."""

    def __init__(self, memory: LinkMemory | None = None, **settings: Any) -> None:
        self.journal = MemoryJournal()
        self.tail = JournalTail(self.journal)
        self.memory = memory or LinkMemory()
        self.now = 0.0
        self.now_us = 0
        self.effects: list[Effect] = []
        self.routes = Routes("a", 1, beat_s=1.0, timeout_s=3.0)
        self.machine = LinkMachine(
            settings=LinkSettings(**settings),
            introduce=lambda cost: Link("a", 1, cost, False, [], "a's"),
            epoch="a's",
            routes=self.routes,
            table=ForwardingTable(
                routes=self.routes,
                queues={},
                ledger=Ledger(),
                origins=Origins(self.memory.origins, "a"),
                distribution=lambda topic: "journal",
            ),
            memory=self.memory,
            journal=self.tail,
            now_us=lambda: self.now_us,
        )

    def give(self, message: Any, peer: Any = THEIRS) -> list[Effect]:
        self.machine.receive(message, peer, self.now)
        self.effects = self.machine.take_effects() if self.machine.has_effects else []
        return self.effects

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass."""
        self.now += seconds
        self.machine.tick(self.now)
        self.effects = self.machine.take_effects()
        return self.effects

    def sent(self, line: Any, kind: Any) -> list[Any]:
        """The messages of a type that were sent over a line."""
        said: list[Any] = [
            one.message for one in self.effects if isinstance(one, SendOnLine) and one.line == line
        ]
        decoder = Decoder()
        for one in self.effects:
            if isinstance(one, SendFrames) and one.line == line:
                said += decoder.feed(b"".join(map(bytes, one.buffers)))
        return [message for message in said if isinstance(message, kind)]

    def passed(self, kind: Any) -> list[tuple[Any, Any]]:
        """The messages of a type that were passed to other parts."""
        found = [one for one in self.effects if isinstance(one, Pass)]
        return [(one.message, one.peer) for one in found if isinstance(one.message, kind)]

    def of(self, kind: Any) -> list[Any]:
        return [one for one in self.effects if isinstance(one, kind)]

    def link(self, name: str = "b", line: Any = THEIRS) -> None:
        """A neighbour is linked, and its events can be stored."""
        self.give(hello(name), line)
        self.give(StoreOpened(), name)

    def subscribed(self, name: str = "b", line: Any = THEIRS, pattern: str = "plant/**") -> None:
        """The neighbour has a subscriber."""
        self.give(LinkState(name, 1, 1, {"a": 1}), line)
        self.give(Announce(name, 1, 1, [(pattern, "journal")], is_whole=True), line)

    def publish(self, first: int = 1) -> None:
        batch = Batch.build(SOURCE, "plant/temp", first, [b"x"], time_us=0)
        self.journal.stage(batch.data, [batch.head])
        self.tail.advance(self.journal.commit())
        self.give(MadeDurable(first), JOURNAL)


def frames(*batches: Batch) -> Frames:
    return Frames(b"".join(bytes(one.data) for one in batches), [one.head for one in batches])


def test_node_introduces_itself_on_a_line_that_it_opened_and_in_answer_to_others() -> None:
    node = Node()
    node.give(LineOpened(cost=5), OURS)
    assert [link.cost for link in node.sent(OURS, Link)] == [5]
    node.give(hello(), OURS)
    assert not node.sent(OURS, Link), "it has done so"
    node.give(hello("c"), THEIRS)
    assert len(node.sent(THEIRS, Link)) == 1


def test_everybody_is_told_that_a_neighbour_is_linked() -> None:
    node = Node()
    node.give(hello())
    assert node.passed(NeighbourUp) == [(NeighbourUp(), "b")]
    assert node.sent(THEIRS, LinkState)[0].links == {"b": 1}
    assert node.of(OpenStore) == [OpenStore("b", THEIRS)]
    assert node.of(SaveLinks) == [SaveLinks(is_urgent=True)], "where its events begin"
    assert node.give(StoreOpened(), "b") == [SendOnLine(THEIRS, Pull("", -1))]


def test_neighbour_that_confirms_outcomes_says_so_when_it_introduces_itself() -> None:
    node = Node()
    node.give(msgspec.structs.replace(hello(), confirms=True))
    assert node.passed(NeighbourUp) == [(NeighbourUp(confirms=True), "b")]


def test_second_line_is_a_spare_that_takes_over() -> None:
    node = Node()
    node.link()
    node.give(hello(), SPARE)
    assert not node.passed(NeighbourUp)
    node.give(LineLost(), THEIRS)
    assert [type(message) for message, _ in node.passed((UpstreamGone, NeighbourDown, NeighbourUp))] == [
        UpstreamGone,
        NeighbourDown,
        NeighbourUp,
    ]
    assert node.sent(SPARE, Pull) == [Pull("", -1)]
    node.give(SendToNeighbour("b", Beat([])), "b")
    assert len(node.sent(SPARE, Beat)) == 1


def test_lines_to_the_process_before_a_restart_are_closed_when_the_next_one_introduces_itself() -> None:
    """It may forward events at once, and would wait for ever if they went with the old line later."""
    node = Node()
    node.link()
    node.give(msgspec.structs.replace(hello(), instance=2), SPARE)
    assert node.of(CloseLine) == [CloseLine(THEIRS)]
    assert [type(message) for message, _ in node.passed((NeighbourDown, NeighbourUp))] == [
        NeighbourDown,
        NeighbourUp,
    ]
    assert node.give(Beat([]), THEIRS) == [], "what comes before it notices is ignored"
    assert node.give(LineLost(), THEIRS) == []
    assert node.machine.lines.neighbours() == {"b"}


def test_a_spare_on_which_the_neighbour_waits_for_outcomes_is_closed_with_the_line_that_counts() -> None:
    """For the neighbour, that spare is the line that counts. It has to know that its events are in doubt."""
    node = Node()
    node.link()
    node.give(hello(), SPARE)
    node.give(Forward(100, "b", "closest", False, 0, 0, ["b"]), SPARE)
    node.give(LineLost(), THEIRS)
    assert node.of(CloseLine) == [CloseLine(SPARE)]
    assert node.passed(NeighbourUp) == []
    assert node.machine.lines.neighbours() == set()
    node.give(LineLost(), SPARE)
    node.link(line=OURS)
    assert node.machine.lines.neighbours() == {"b"}


def test_events_go_on_over_the_line_on_which_they_were_requested() -> None:
    """The neighbour has noticed that the first line is dead, and this node has not."""
    node = Node()
    node.link()
    node.subscribed()
    node.give(Pull("", -1))
    node.give(hello(), SPARE)
    node.give(Pull("a's", 0), SPARE)
    node.give(LineLost(), THEIRS)
    node.publish()
    assert [head.first for one in node.sent(SPARE, Frames) for head in one.heads] == [1]


def test_events_wait_while_no_line_is_there_on_which_they_were_requested() -> None:
    node = Node()
    node.link()
    node.subscribed()
    node.give(Pull("", -1))
    node.give(LineLost(), THEIRS)
    node.publish()
    assert node.of(SendFrames) == []
    node.give(hello(), SPARE)
    node.give(Pull("a's", 0), SPARE)
    assert [head.first for one in node.sent(SPARE, Frames) for head in one.heads] == [1]


def test_nodes_that_can_not_be_reached_are_remembered_and_forgotten_in_the_end() -> None:
    node = Node()
    node.link()
    node.subscribed()
    node.wait(REVIEW_S)
    assert node.memory.nodes["b"].patterns == ["plant/**"]
    assert node.of(SaveLinks) == [SaveLinks(is_urgent=False)]
    assert node.memory.away == {}
    node.now_us = 5_000_000
    node.give(LineLost(), THEIRS)
    node.wait(REVIEW_S)
    assert node.memory.away == {"b": 5_000_000}
    node.memory.forget_nodes(before_us=5_000_000)
    assert "b" in node.memory.nodes
    node.memory.forget_nodes(before_us=5_000_001)
    assert (node.memory.nodes, node.memory.away) == ({}, {})


def test_routes_are_looked_at_once_for_many_changes_that_follow_each_other() -> None:
    node = Node()
    node.link()
    node.wait(REVIEW_S)
    node.give(LinkState("c", 1, 1, {"b": 1}))
    assert node.passed(RoutesChanged), "the first one at once"
    for seq in range(2, 100):
        node.give(LinkState("c", 1, seq, {"b": seq}))
        assert not node.passed(RoutesChanged)
    assert node.machine.next_deadline() == node.now + REVIEW_S
    node.wait(REVIEW_S)
    assert len(node.passed(RoutesChanged)) == 1
    node.wait(REVIEW_S)
    assert not node.passed(RoutesChanged)


def test_loss_of_a_spare_changes_nothing() -> None:
    node = Node()
    node.link()
    node.give(hello(), SPARE)
    assert node.give(LineLost(), SPARE) == []
    assert node.machine.lines.neighbours() == {"b"}


def test_neighbour_is_gone_with_its_last_line() -> None:
    node = Node()
    node.link()
    node.give(LineLost(), THEIRS)
    assert node.passed(NeighbourDown) == [(NeighbourDown(), "b")]
    assert node.machine.lines.neighbours() == set()
    assert "b" not in node.routes.neighbours


@pytest.mark.parametrize(
    ("settings", "message", "code"),
    [
        ({}, hello("a"), Code.FAILED_PRECONDITION),
        ({}, hello("\0"), Code.FAILED_PRECONDITION),
        ({"edge": True}, hello(is_edge=True), Code.FAILED_PRECONDITION),
        ({}, LinkState("b", 1, 1, {"a": 0}), Code.INVALID_ARGUMENT),
        ({}, Announce("b", 1, 1, [("plant//", "any")]), Code.INVALID_ARGUMENT),
        ({}, Forward(1, "b", "nonsense", False, 0, 0, []), Code.INVALID_ARGUMENT),
    ],
)
def test_bad_message_dismisses_its_line(settings: dict[str, Any], message: Any, code: Code) -> None:
    node = Node(**settings)
    if not isinstance(message, Link):
        node.link()
    [dismissal] = [one for one in node.give(message) if isinstance(one, DismissLine)]
    assert (dismissal.line, dismissal.code) == (THEIRS, code)
    assert node.give(hello("c")) == [], "what comes before it notices is ignored"


def test_node_that_introduces_itself_twice_is_dismissed() -> None:
    node = Node()
    node.link()
    node.give(hello("c"))
    assert [one.code for one in node.of(DismissLine)] == [Code.INVALID_ARGUMENT]
    assert node.machine.lines.neighbours() == {"b"}


def test_messages_before_an_introduction_are_ignored() -> None:
    node = Node()
    assert node.give(Pull("", -1)) == []
    assert node.give(Got(7)) == []
    assert node.give(Returned([])) == []


def test_silent_neighbour_loses_its_lines() -> None:
    node = Node()
    node.link()
    node.machine.tick(10.0)
    node.effects = node.machine.take_effects()
    assert node.of(CloseLine) == [CloseLine(THEIRS)]


def test_full_connection_makes_anycast_wait() -> None:
    node = Node()
    node.link()
    node.give(LineBlocked(True))
    assert node.passed(Stall) == [(Stall(True), "b")]


def test_new_events_are_carried_to_a_neighbour_that_subscribes() -> None:
    node = Node()
    node.link()
    node.subscribed()
    node.wait(REVIEW_S)
    assert node.passed(RoutesChanged)
    node.give(Pull("", -1))
    node.publish()
    assert [carry.origins for carry in node.sent(THEIRS, Carry)] == [[(SOURCE, "a")]]
    assert [head.first for one in node.sent(THEIRS, Frames) for head in one.heads] == [1]


def test_event_is_carried_that_was_published_before_the_request_but_after_the_subscription() -> None:
    node = Node()
    node.link()
    node.subscribed()
    node.publish()
    assert not node.sent(THEIRS, Frames)
    node.give(Pull("", -1))
    assert [head.first for one in node.sent(THEIRS, Frames) for head in one.heads] == [1]


def test_recent_events_are_carried_over_a_new_link_that_replaces_another_way() -> None:
    """They were on their way over c, which does not pass them on any more: this link is shorter."""
    node = Node()
    node.link("c", SPARE)
    node.give(LinkState("c", 1, 1, {"a": 1, "b": 1}), SPARE)
    node.give(LinkState("b", 1, 1, {"c": 1}), SPARE)
    node.publish()
    node.link("b", THEIRS)
    node.give(LinkState("b", 1, 2, {"c": 1, "a": 1}))
    node.give(Announce("b", 1, 1, [("plant/**", "journal")], is_whole=True))
    node.give(Pull("", -1))
    assert [head.first for one in node.sent(THEIRS, Frames) for head in one.heads] == [1]


def test_recent_events_are_carried_to_a_neighbour_that_comes_back_with_another_disk() -> None:
    """They were on their way to the nodes behind it, or were published while it was away."""
    node = Node()
    node.link()
    node.subscribed()
    node.give(Pull("", -1))
    node.publish(1)
    node.give(LineLost(), THEIRS)
    node.publish(2)
    node.give(msgspec.structs.replace(hello(), journal="b's new one"), SPARE)
    node.subscribed(line=SPARE)
    node.give(Pull("", -1), SPARE)
    assert [head.first for one in node.sent(SPARE, Frames) for head in one.heads] == [1, 2]


def test_events_after_the_position_of_a_neighbour_are_carried_when_it_is_known_what_it_wants() -> None:
    """It asks before it says so, and the events are older than `heal_s`."""
    node = Node(LinkMemory(first={"b": ("b's", "a's", 0)}), heal_s=0.0)
    node.now_us = 10**12
    node.publish(1)
    node.link()
    node.give(Pull("a's", 0))
    assert not node.sent(THEIRS, Frames)
    node.give(LinkState("b", 1, 1, {"a": 1}))
    node.give(Announce("b", 1, 1, [("plant/**", "journal")], is_whole=True))
    assert [head.first for one in node.sent(THEIRS, Frames) for head in one.heads] == [1]


def test_events_before_the_only_link_are_not_carried() -> None:
    node = Node()
    node.publish()
    node.link()
    node.subscribed()
    node.give(Pull("", -1))
    assert not node.sent(THEIRS, Frames)


def test_events_from_a_neighbour_are_stored_and_acknowledged_when_they_are_durable() -> None:
    node = Node()
    node.link()
    batch = Batch.build(OTHER, "plant/temp", 1, [b"x"], time_us=0)
    node.give(Carry(len(batch.data), 500, [(OTHER, "c")]))
    node.give(frames(batch))
    [stored] = node.of(StoreBatches)
    assert not node.sent(THEIRS, Got)
    assert node.memory.origins == {OTHER.hex(): "c"}
    node.give(BatchStored(stored.batches[0]), "b")
    assert node.sent(THEIRS, Got) == [Got(500)]
    assert node.memory.positions == {"b": ("b's", 500)}
    assert node.of(SaveLinks) == [SaveLinks(is_urgent=True)], "it is the first position in this journal"


def test_position_is_saved_before_it_is_acknowledged() -> None:
    node = Node()
    node.link()
    node.give(Carry(0, 500, []))
    kinds = [type(effect) for effect in node.effects]
    assert kinds.index(SaveLinks) < kinds.index(SendOnLine)


def test_request_for_events_resumes_at_the_position_that_is_stored() -> None:
    node = Node(LinkMemory(positions={"b": ("b's", 900)}))
    node.give(hello())
    node.give(StoreOpened(), "b")
    assert node.sent(THEIRS, Pull) == [Pull("b's", 900)]


def test_batches_that_nobody_announced_are_dropped() -> None:
    node = Node()
    node.link()
    node.give(frames(Batch.build(OTHER, "plant/temp", 1, [b"x"], time_us=0)))
    assert not node.of(StoreBatches)
    assert not node.of(Pass)


def test_forwarded_events_are_offered_to_anycast_and_streams() -> None:
    node = Node()
    node.link()
    node.now = 5.0
    plain = Batch.build(OTHER, "orders/new", 1, [b"x"], time_us=0)
    stream = Batch.build(SOURCE, "orders/new", 1, [b""], time_us=0, flags=FLAG_STREAM)
    for batch in (plain, stream):
        node.give(Forward(len(batch.data), "c", "balanced", True, 2, 1000, ["c", "b"]))
        node.give(frames(batch))
        assert [peer for _, peer in node.passed((OfferEvents, OfferStream))] == ["b"]
        [(offer, _)] = node.passed((OfferEvents, OfferStream))
        assert isinstance(offer, OfferStream) == (batch is stream)
        offered = offer.offered if isinstance(offer, OfferStream) else offer
        assert (offered.origin, offered.visited, offered.attempts, offered.deadline) == (
            "c",
            ("c", "b"),
            2,
            6.0,
        )


def test_events_for_a_neighbour_follow_the_messages_about_routes() -> None:
    node = Node()
    node.link()
    batch = Batch.build(SOURCE, "orders/new", 1, [b"x"], time_us=0)
    wanted = ForwardToNeighbour("b", "orders/new", SOURCE, 1, 2, batch, "a", "balanced", True, 0, ["a"], None)
    node.machine.receive(Interests([("orders/**", "any")]), "a", 0.0)
    node.give(ForwardBatch(wanted, batch), "b")
    kinds = [type(one.message) if isinstance(one, SendOnLine) else type(one) for one in node.effects]
    assert kinds == [Announce, SendFrames]
    assert node.sent(THEIRS, Forward)[0].visited == ["a"]


def test_outcomes_for_a_neighbour_go_together() -> None:
    node = Node()
    node.link()
    rows = [Return("t", SOURCE, RangeOutcome(seq, seq + 1, Outcome.ACCEPTED), []) for seq in (1, 2)]
    node.machine.receive(ReturnOutcome(rows[0], 7), "b", 0.0)
    node.give(ReturnOutcome(rows[1]), "b")
    assert node.sent(THEIRS, Returned) == [Returned(rows, 7)]


def test_outcomes_do_not_go_over_a_later_line_where_nobody_waits_for_them() -> None:
    node = Node()
    node.link()
    node.give(hello(), SPARE)
    row = Return("t", SOURCE, RangeOutcome(1, 2, Outcome.ACCEPTED), [])
    node.machine.receive(ReturnOutcome(row, 1), "b", 0.0)
    node.give(LineLost(), THEIRS)
    assert not node.sent(SPARE, Returned)


def test_outcomes_and_chunks_of_a_neighbour_are_passed_on() -> None:
    node = Node()
    node.link()
    node.give(Returned([], 3))
    assert node.passed(NeighbourOutcomes) == [(NeighbourOutcomes([], 3), "b")]
    node.give(Recorded(3))
    assert node.passed(NeighbourRecorded) == [(NeighbourRecorded(3), "b")]
    node.give(Room(0, SOURCE, 100))
    assert node.passed(Room) == [(Room(0, SOURCE, 100), "b")]


def test_node_without_links_has_nothing_to_do() -> None:
    node = Node()
    node.publish()
    assert node.effects == []
    assert not node.machine.has_effects


def test_removed_events_are_told_to_those_who_do_not_have_them_and_recorded_losses_are_confirmed() -> None:
    node = Node()
    node.link()
    node.subscribed()
    node.give(Pull("a's", 0))
    node.publish()
    series = ("plant/temp", SOURCE)
    node.give(EventsRemoved([Removed(*series, 1, 2)], node.journal.end))
    assert node.of(SaveLinks) == [SaveLinks(is_urgent=True)]
    [told] = node.sent(THEIRS, Carry)
    assert told.missed == [Missed(*series, 1, 2)]
    node.give(Got(node.journal.end, told.number))
    assert not node.memory.missed
    node.give(EventsRemoved([Removed(*series, 2, 3)], node.journal.end))
    assert not node.memory.missed, "the neighbour has everything before that"


def test_losses_of_a_neighbour_are_recorded_passed_on_and_confirmed() -> None:
    node = Node()
    node.link()
    node.link("c", SPARE)
    node.subscribed("c", SPARE)
    lost = Missed("plant/temp", SOURCE, 1, 2)
    node.give(Carry(0, 100, [(SOURCE, "b")], [lost], 7))
    assert node.of(RecordLosses) == [RecordLosses("b", 7, [lost])]
    node.give(EventsLost(Removed("plant/temp", SOURCE, 1, 2)), "b")
    assert list(node.memory.missed) == ["c"]
    node.give(LossesRecorded(7), "b")
    assert node.sent(THEIRS, Got) == [Got(100, 7)]


def test_losses_on_a_topic_that_is_not_valid_dismiss_the_line() -> None:
    node = Node()
    node.link()
    node.give(Carry(0, 100, [], [Missed("plant//temp", SOURCE, 1, 2)], 7))
    assert [one.code for one in node.of(DismissLine)] == [Code.INVALID_ARGUMENT]
