"""What is sent to a neighbour and from which position on, and what is acknowledged of what it sends."""

from __future__ import annotations

from typing import cast

from reknit.batch import Batch
from reknit.entries import Removed
from reknit.node.core.journal_tail import JournalTail
from reknit.protocol.links.flows import TURN_BYTES, IncomingFlow, OutgoingFlow, SentParts
from reknit.protocol.links.forwarding_table import ForwardingTable
from reknit.protocol.links.inputs import ContinueSoon, Effect, SendFrames, SendOnLine
from reknit.protocol.links.memory import LinkMemory
from reknit.protocol.links.missed_events import MissedEvents
from reknit.store.memory import MemoryJournal
from reknit.wire.codec import Decoder, Frames
from reknit.wire.links import Carry, Missed, Pull

SOURCE = b"s" * 16
OTHER = b"o" * 16
LINE = 7


class Everything:
    """A forwarding table that wants every series, or none."""

    def __init__(self) -> None:
        self.origins = self
        self.wants = True

    def is_wanted(self, name: str, series: object) -> bool:
        return self.wants

    def told(self, source: bytes) -> str | None:
        return "a"


class Sender:
    """The flow of node a to its neighbour b."""

    def __init__(
        self, memory: LinkMemory | None = None, journal: MemoryJournal | None = None, window: int = 1 << 20
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.tail = JournalTail(self.journal)
        self.memory = memory or LinkMemory()
        self.effects: list[Effect] = []
        self.next_seq = 1
        self.table = Everything()
        self.missed = MissedEvents(self.memory)
        self.flow = OutgoingFlow(
            "b",
            window_bytes=window,
            epoch="a's",
            journal=self.tail,
            table=cast(ForwardingTable, self.table),
            missed=self.missed,
            emit=self.effects.append,
        )

    def link(self, journal: str = "b's") -> None:
        first, _ = self.memory.first_linked("b", journal, "a's", self.journal.end, self.journal.end)
        self.flow.up(first)

    def publish(self, size: int = 1, source: bytes = SOURCE) -> None:
        batch = Batch.build(source, "plant/temp", self.next_seq, [b"x" * size], time_us=0)
        self.next_seq += 1
        self.journal.stage(batch.data, [batch.head])
        self.tail.advance(self.journal.commit())
        self.flow.pump()

    def pull(self, position: int = -1, epoch: str = "a's") -> None:
        self.effects.clear()
        self.flow.pull(Pull(epoch, position), LINE)

    def carried(self) -> list[Carry]:
        """The headers that were sent."""
        decoder = Decoder()
        sent = [effect for effect in self.effects if isinstance(effect, SendFrames)]
        items = [item for effect in sent for item in decoder.feed(b"".join(map(bytes, effect.buffers)))]
        return [item for item in items if isinstance(item, Carry)]

    def seqs(self) -> list[int]:
        """The seqs that were sent."""
        decoder = Decoder()
        sent = [effect for effect in self.effects if isinstance(effect, SendFrames)]
        items = [item for effect in sent for item in decoder.feed(b"".join(map(bytes, effect.buffers)))]
        return [head.first for item in items if isinstance(item, Frames) for head in item.heads]


def test_event_between_the_link_and_the_request_for_events_is_carried() -> None:
    sender = Sender()
    sender.publish()  # before the neighbour was linked
    sender.link()
    sender.publish()  # its subscriptions are known, but it has not requested events yet
    sender.pull()
    sender.publish()
    assert sender.seqs() == [2, 3]


def test_neighbour_is_told_where_its_events_begin() -> None:
    sender = Sender()
    sender.publish()
    sender.link()
    sender.pull()
    assert sender.effects == [SendOnLine(LINE, Carry(0, sender.journal.end, []))]


def test_neighbour_that_crashed_before_it_noted_its_position_misses_nothing() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.flow.lost(LINE, 0)
    sender.publish()
    sender.link()
    sender.pull()
    assert sender.seqs() == [1]


def test_neighbour_with_another_journal_begins_anew() -> None:
    sender = Sender()
    sender.link("b's")
    sender.publish()
    sender.link("b's, after its disk was replaced")
    sender.pull()
    assert sender.seqs() == []
    sender.publish()
    assert sender.seqs() == [2]


def test_neighbour_with_a_position_resumes_there() -> None:
    sender = Sender()
    sender.link()
    sender.publish()
    position = sender.journal.end
    sender.publish()
    sender.pull(position)
    assert sender.seqs() == [2]


def test_events_before_a_neighbours_position_are_carried_when_they_become_its_own() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.table.wants = False
    sender.publish()  # goes another way, and never arrives there
    sender.flow.lost(LINE, 0)
    sender.link()
    sender.pull(position=sender.journal.end)
    sender.table.wants = True
    sender.flow.look_back(0)
    assert sender.seqs() == [1]


def test_events_that_a_neighbour_acknowledged_are_not_carried_again_over_another_line() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.publish()
    stored = sender.journal.end
    sender.flow.got(stored)
    sender.publish(source=OTHER)
    sender.flow.lost(LINE, 0)
    sender.link()
    sender.pull(position=stored)
    sender.flow.look_back(0)
    assert sender.seqs() == [2]


def test_neighbour_that_lost_what_it_acknowledged_gets_it_again() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    start = sender.journal.end
    sender.publish()
    sender.flow.got(sender.journal.end)
    sender.flow.lost(LINE, 0)
    sender.link()
    sender.pull(position=start)
    assert sender.seqs() == [1]


def test_acknowledging_a_later_part_says_nothing_about_one_that_was_sent_after_it() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.table.wants = False
    sender.publish()
    sender.table.wants = True
    sender.publish(source=OTHER)
    end = sender.journal.end
    sender.flow.look_back(0)
    sender.flow.got(end)  # the event of the other source
    sender.flow.lost(LINE, 0)
    sender.link()
    sender.pull(position=end)
    sender.flow.look_back(0)
    assert sender.seqs() == [1]


def test_neighbour_with_a_position_in_an_older_journal_gets_everything() -> None:
    sender = Sender()
    sender.publish()
    sender.link()
    sender.pull(500, "a's, before its disk was replaced")
    assert sender.seqs() == [1]


def test_first_position_of_a_neighbour_outlasts_a_crash_of_this_node() -> None:
    sender = Sender()
    sender.link()
    sender.publish()
    again = Sender(sender.memory, sender.journal)
    again.link()
    again.pull()
    assert again.seqs() == [1]


def test_position_in_a_journal_that_was_replaced_is_not_used() -> None:
    memory = LinkMemory()
    assert memory.first_linked("b", "b's", "a's", 600, 700) == (600, True)
    assert memory.first_linked("b", "b's", "a's", 800, 900) == (600, False)
    assert memory.first_linked("b", "b's", "a's new one", 10, 10) == (10, True)


def test_neighbour_that_does_not_acknowledge_gets_no_more_than_a_window() -> None:
    sender = Sender(window=1)
    sender.link()
    sender.pull()
    sender.publish()
    sender.publish()
    assert sender.seqs() == [1]
    sender.flow.got(sender.carried()[0].position)
    assert sender.seqs() == [1, 2]


def test_one_answer_covers_a_part_and_earlier_ones_that_were_sent_after_it() -> None:
    """Seed 10251: the first part stayed unacknowledged, and the window had less and less room."""
    sent = SentParts()
    sent.resume(-1, 0)
    for position in (300, 100, 200):  # it looked back after the first
        sent.sent(position, 10, {})
    sent.got(100)
    assert sent.bytes == 10
    sent.got(200)
    assert sent.bytes == 0


def test_much_to_read_is_read_in_several_turns() -> None:
    sender = Sender(window=1 << 30)
    sender.link()
    for _ in range(12):
        sender.publish(1 << 20)
    sender.pull()
    assert sender.effects[-1] == ContinueSoon()
    assert sum(carry.size for carry in sender.carried()) >= TURN_BYTES
    turns = 1
    while len(sender.seqs()) < 12:
        sender.flow.pump()
        turns += 1
    assert sender.seqs() == list(range(1, 13))
    assert turns > 4


def test_events_that_came_from_a_neighbour_do_not_go_back() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.flow.came(("plant/temp", SOURCE), 2)
    sender.publish()
    sender.publish()
    assert sender.seqs() == [2]


def test_origin_of_a_source_is_told_once_and_again_when_it_moved() -> None:
    sender = Sender()
    sender.link()
    sender.pull()
    sender.publish()
    sender.publish()
    sender.flow.forget_origin(SOURCE)
    sender.publish()
    assert [carry.origins for carry in sender.carried()] == [[(SOURCE, "a")], [], [(SOURCE, "a")]]


def batches(*firsts: int) -> list[Batch]:
    return [Batch.build(SOURCE, "plant/temp", first, [b"x"], time_us=0) for first in firsts]


def test_position_is_acknowledged_when_everything_before_it_is_durable() -> None:
    flow = IncomingFlow()
    one, two, three = batches(1, 2, 3)
    assert flow.take(100, [one, two], True) == -1
    assert flow.take(200, [three], True) == -1
    assert flow.stored(three) == -1, "what is before it is not durable"
    assert flow.stored(one) == -1
    assert flow.stored(two) == 200


def test_part_that_has_not_arrived_completely_is_not_acknowledged() -> None:
    flow = IncomingFlow()
    one, two = batches(1, 2)
    flow.take(100, [one], False)
    assert flow.stored(one) == -1
    flow.take(100, [two], True)
    assert flow.stored(two) == 100


def test_position_without_events_is_acknowledged_at_once() -> None:
    assert IncomingFlow().take(100, [], True) == 100


def test_batches_of_an_earlier_request_acknowledge_nothing() -> None:
    flow = IncomingFlow()
    [one] = batches(1)
    flow.take(100, [one], True)
    flow.pulled()
    assert flow.stored(one) == -1


def removed(sender: Sender, start: int, stop: int) -> None:
    """Retention removes all that is stored, and these seqs were meant for the neighbour."""
    sender.missed.note("b", Removed("plant/temp", SOURCE, start, stop), sender.journal.end)


def told(sender: Sender) -> list[tuple[int, list[Missed]]]:
    """The losses that the neighbour was told, with their numbers."""
    said = [effect.message for effect in sender.effects if isinstance(effect, SendOnLine)]
    return [(one.number, one.missed) for one in said if isinstance(one, Carry) and one.missed]


def test_events_that_were_removed_before_they_were_carried_are_told_until_that_is_recorded() -> None:
    """Fabric 112431: no later event of the source followed, and the subscriber waited for ever."""
    sender = Sender()
    sender.link()
    sender.pull()
    sender.flow.lost(LINE, 0)
    sender.publish()
    removed(sender, 1, 2)
    sender.pull(0)
    lost = [Missed("plant/temp", SOURCE, 1, 2)]
    assert told(sender) == [(1, lost)]
    sender.effects.clear()
    sender.publish()
    assert told(sender) == [], "once on a line"
    sender.pull(0)
    assert told(sender) == [(1, lost)], "the neighbour may have crashed"
    assert not sender.missed.recorded("b", 2)
    assert sender.missed.recorded("b", 1)
    sender.pull(0)
    assert told(sender) == []


def test_a_loss_is_told_after_the_events_before_it() -> None:
    sender = Sender(window=1)
    sender.link()
    sender.pull()
    sender.publish()
    sender.publish()
    sender.effects.clear()
    removed(sender, 3, 4)
    sender.flow.pump()
    assert told(sender) == [], "the second event waits for room in the window"
    sender.flow.got(sender.journal.end)
    assert sender.seqs() == [2]
    assert told(sender) == [(1, [Missed("plant/temp", SOURCE, 3, 4)])]


def test_a_flow_knows_how_far_its_neighbour_has_got_while_it_is_away() -> None:
    sender = Sender()
    sender.link()
    assert sender.flow.reached == -1
    sender.pull()
    begin = sender.journal.end
    sender.publish()
    assert sender.flow.reached == begin
    sender.flow.got(sender.journal.end)
    assert sender.flow.reached == sender.journal.end
    sender.flow.lost(LINE, 0)
    sender.publish()
    assert begin < sender.flow.reached < sender.journal.end


def test_losses_are_recorded_when_everything_before_them_is_durable() -> None:
    flow = IncomingFlow()
    batch = Batch.build(SOURCE, "plant/temp", 1, [b"x"], time_us=0)
    flow.take(100, [batch], True)
    lost = Carry(0, 100, [], [Missed("plant/temp", SOURCE, 2, 3)], 1)
    flow.miss(lost)
    assert flow.take_missed() == []
    flow.stored(batch)
    assert flow.take_missed() == [lost]
    flow.miss(lost)
    assert flow.take_missed() == [lost], "nothing is before it"
