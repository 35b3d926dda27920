"""What is sent to a neighbour, and from which position on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from reknit.batch import Batch
from reknit.config import Config, JournalSettings, LinkSettings, NodeSettings
from reknit.frame import Buffer
from reknit.node.core.journal_tail import JournalTail
from reknit.node.links.forwarding_table import ForwardingTable
from reknit.node.links.positions import NeighbourPositions, SavedLinks
from reknit.node.links.replication import OutgoingReplication
from reknit.node.replication.state_file import StateFile
from reknit.store.memory import MemoryJournal
from reknit.wire.codec import Decoder, Frames
from reknit.wire.links import Carry, Pull

SOURCE = b"s" * 16


class Everything:
    """A forwarding table that wants every series."""

    def __init__(self) -> None:
        self.origins = self

    def is_wanted(self, name: str, series: object) -> bool:
        return True

    def told(self, source: bytes) -> str | None:
        return "a"


class Line:
    """A connection to the neighbour, which notes what was sent."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._decoder = Decoder()
        self._known: set[bytes] = set()

    def send(self, *items: Any) -> None:
        self.items += items

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.items += self._decoder.feed(b"".join(bytes(one) for one in buffers))

    def knows_origin(self, source: bytes) -> bool:
        is_known = source in self._known
        self._known.add(source)
        return is_known

    def seqs(self) -> list[int]:
        return [head.first for item in self.items if isinstance(item, Frames) for head in item.heads]


class Sender:
    """The flow of node a to its neighbour b."""

    def __init__(
        self, positions: NeighbourPositions | None = None, journal: MemoryJournal | None = None
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.tail = JournalTail(self.journal)
        self.positions = positions or NeighbourPositions(StateFile(MEMORY, "links.json", SavedLinks))
        self.turns = 0
        self.next_seq = 1
        self.flow = OutgoingReplication(
            "b",
            settings=LinkSettings(),
            epoch="a's",
            journal=self.journal,
            tail=self.tail,
            table=cast(ForwardingTable, Everything()),
            on_forwarded=lambda head: None,
            pump_soon=self._turn,
            first=0,
        )

    def _turn(self) -> None:
        self.turns += 1

    def link(self, journal: str = "b's") -> None:
        self.flow.up(self.positions.first_linked("b", journal, "a's", self.journal.end))

    def publish(self) -> None:
        batch = Batch.build(SOURCE, "plant/temp", self.next_seq, [b"x"], time_us=0)
        self.next_seq += 1
        self.journal.stage(batch.data, [batch.head])
        self.tail.advance(self.journal.commit())
        self.flow.pump()

    def pull(self, position: int = -1, epoch: str = "a's") -> Line:
        line = Line()
        self.flow.pull(Pull(epoch, position), cast(Any, line))
        return line


MEMORY = Config(journal=JournalSettings(kind="memory"))


def test_event_between_the_link_and_the_request_for_events_is_carried() -> None:
    sender = Sender()
    sender.publish()  # before the neighbour was linked
    sender.link()
    sender.publish()  # its subscriptions are known, but it has not requested events yet
    line = sender.pull()
    sender.publish()
    assert line.seqs() == [2, 3]


def test_neighbour_is_told_where_its_events_begin() -> None:
    sender = Sender()
    sender.publish()
    sender.link()
    end = sender.journal.end
    [carry] = sender.pull().items
    assert carry == Carry(0, end, [])


def test_neighbour_that_crashed_before_it_noted_its_position_misses_nothing() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.flow.stop()
    sender.publish()
    sender.link()
    assert sender.pull().seqs() == [1]


def test_neighbour_with_another_journal_begins_anew() -> None:
    sender = Sender()
    sender.link("b's")
    sender.publish()
    sender.link("b's, after its disk was replaced")
    line = sender.pull()
    assert line.seqs() == []
    sender.publish()
    assert line.seqs() == [2]


def test_neighbour_with_a_position_resumes_there() -> None:
    sender = Sender()
    sender.link()
    sender.publish()
    position = sender.journal.end
    sender.publish()
    assert sender.pull(position).seqs() == [2]


def test_first_position_of_a_neighbour_outlasts_a_crash_of_this_node(tmp_path: Path) -> None:
    config = Config(node=NodeSettings(data_dir=tmp_path), journal=JournalSettings(kind="disk"))
    sender = Sender(NeighbourPositions(StateFile(config, "links.json", SavedLinks)))
    sender.link()
    sender.publish()
    again = Sender(NeighbourPositions(StateFile(config, "links.json", SavedLinks)), sender.journal)
    again.link()
    assert again.pull().seqs() == [1]


def test_position_in_a_journal_that_was_replaced_is_not_used() -> None:
    positions = NeighbourPositions(StateFile(MEMORY, "links.json", SavedLinks))
    assert positions.first_linked("b", "b's", "a's", 700) == 700
    assert positions.first_linked("b", "b's", "a's", 900) == 700
    assert positions.first_linked("b", "b's", "a's new one", 10) == 10
