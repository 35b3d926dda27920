"""Dead letters on a node: whole, durable, bounded; paged, redriven once, and dropped."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from reknit.batch import HEADER_BYTES, Batch
from reknit.config import Config, DispatchSettings, LimitSettings, RetentionSettings, TopicSettings
from reknit.dead_letter import DeadLetterContent, DeadLetterFilter
from reknit.node.core.core import Core
from reknit.node.core.dead_letter_admin import SCAN_BYTES_MAX, TOPICS_MAX
from reknit.outcome import Code, Outcome, Reason
from reknit.store.disk import DiskJournal
from reknit.store.journal import Journal
from reknit.store.log.retention import Retention
from reknit.store.memory import MemoryJournal, SimJournal
from reknit.topic import Pattern
from reknit.wire.codec import Decoder, Frames
from reknit.wire.messages import (
    Ack,
    Answer,
    Ask,
    DispositionRow,
    Go,
    Held,
    Hold,
    Message,
    Settle,
    Start,
    Subscribe,
)

SOURCE = b"s" * 16
TOPIC = "reknit/dead-letters"


def source_of(topic: str) -> bytes:
    return SOURCE if topic == "plant/a" else topic.encode().ljust(16, b"_")


class Desk:
    """A node's core with a subscriber that rejects, and a clock that is given."""

    def __init__(self, journal: Journal | None = None, **sections: Any) -> None:
        self.journal = journal or MemoryJournal()
        self.said: list[tuple[object, Any]] = []
        self.now_us = 1_000_000_000
        self._decoders: dict[object, Decoder] = {}
        self._wanted = 0
        self.settled = 0
        config = Config(**sections)
        clock = lambda: self.now_us  # noqa: E731
        self.core = Core(
            "n1", "epoch", self.journal, config, self, Random(1), zero_us=1_000_000_000, now_us=clock
        )

    def send(self, peer: object, buffers: Any) -> None:
        data = b"".join(bytes(one) for one in buffers)
        self.said += [(peer, item) for item in self._decoders.setdefault(peer, Decoder()).feed(data)]

    def commit(self, number: int, sync: bool) -> None:
        self._wanted = number

    def run(self) -> None:
        """Let it do everything, and make it durable."""
        while True:
            self.core.run(0.0)
            if self.journal.staged_end == self.journal.end:
                return
            self.core.durable(self._wanted, self.journal.commit(), 0.0)

    def subscribe(self, name: str, pattern: str = "plant/**") -> None:
        self.core.receive(Subscribe(1, pattern, name, Start(), 1 << 30), name, 0.0)
        self.run()

    def publish(self, first: int, payloads: list[bytes], topic: str = "plant/a", **fields: Any) -> None:
        batch = Batch.build(source_of(topic), topic, first, payloads, self.now_us, **fields)
        self.core.receive(Frames(bytes(batch.data), [batch.head]), "publisher", 0.0)
        self.run()

    def settle(self, start: int, stop: int, outcome: Outcome, topic: str = "plant/a", **fields: Any) -> None:
        self.settled += 1
        row = DispositionRow(topic, source_of(topic), start, stop, int(outcome), **fields)
        self.core.receive(Settle(1, self.settled, [row]), "audit", 0.0)
        self.run()

    def die(self, first: int, count: int = 1, topic: str = "plant/a", size: int = 0, **fields: Any) -> None:
        """Publish events of so many bytes at least, and reject them."""
        payloads = [(b"%d" % seq).ljust(size) for seq in range(first, first + count)]
        self.publish(first, payloads, topic, **fields)
        self.settle(first, first + count, Outcome.REJECTED, topic, code=int(Code.DATA_LOSS), text="torn")

    def ask(self, what: str, **args: Any) -> Any:
        self.core.order(Ask(9, what, args), "admin", 0.0)
        self.run()
        return self.told(Answer)[-1]

    def letters(self, **wanted: Any) -> list[DeadLetterContent]:
        rows = self.core.dead_letter_admin.page({"wanted": wanted})["letters"]
        return [msgspec.convert(row, DeadLetterContent) for _, row in rows]

    def events(self, topic: str, is_redriven: bool = True) -> list[Batch]:
        """The events that the journal holds on a topic: of the redrive and of others, or of its first source."""
        entries = [
            entry
            for source in self.journal.sources(topic)
            if is_redriven != (source == source_of(topic))
            for entry in self.journal.find(topic, source, 1, 1 << 62)
        ]
        return [Batch.parse(self.journal.fetch(entry)) for entry in entries]

    def told(self, kind: type[Message]) -> list[Any]:
        return [item for _, item in self.said if isinstance(item, kind)]


def desk(**fields: Any) -> Desk:
    made = Desk(**fields)
    made.subscribe("audit")
    return made


# -- what a letter says


def test_letter_has_everything_that_is_known() -> None:
    one = desk(dispatch=DispatchSettings(attempts_max=2))
    one.publish(1, [b"x"], ttl_ms=60_000, priority=4, columns={"key": ["k"], "headers": [{"a": "b"}]})
    one.settle(1, 2, Outcome.FAILED, code=int(Code.UNAVAILABLE), text="busy")
    one.core.tick(50.0)
    one.run()
    one.settle(1, 2, Outcome.FAILED, code=int(Code.ABORTED), text="still busy")
    [letter] = one.letters()
    assert (letter.topic, letter.source, letter.seq, letter.payload) == ("plant/a", SOURCE, 1, b"x")
    assert (letter.code, letter.reason) == (Code.ABORTED, Reason.ATTEMPTS_EXHAUSTED)
    assert (letter.text, letter.subscriber) == ("2 attempts failed: still busy", "audit")
    assert (letter.node, letter.path, letter.attempts) == ("n1", "audit", 2)
    assert [(t.outcome, t.code) for t in letter.tries] == [
        (Outcome.FAILED, Code.UNAVAILABLE),
        (Outcome.FAILED, Code.ABORTED),
    ]
    assert (letter.first_us, letter.last_us) == (letter.tries[0].time_us, letter.tries[1].time_us)
    assert (letter.ttl_ms, letter.priority, letter.columns["key"]) == (60_000, 4, "k")
    assert letter.redriven == 0


def test_letter_has_the_raw_header() -> None:
    one = desk()
    one.die(1, 3)
    [batch] = one.events("plant/a", is_redriven=False)
    assert one.letters()[1].header == bytes(batch.data[: HEADER_BYTES + 8])


def test_payload_can_be_left_out_per_topic() -> None:
    one = desk(topics=(TopicSettings(pattern=Pattern("plant/secret"), dead_letter_payload=False),))
    one.die(1, topic="plant/secret")
    [letter] = one.letters()
    assert (letter.payload, letter.has_payload) == (b"", False)
    assert letter.header


def test_every_event_of_a_range_has_its_letter() -> None:
    one = desk()
    one.die(1, 2500)
    assert one.core.dead_letters.waiting.count == 2500
    sizes = [batch.count for batch in one.events(TOPIC)]
    assert sizes == [1000, 1000, 500]


def test_dead_letter_is_never_dead_lettered() -> None:
    one = desk()
    one.subscribe("reader", "reknit/**")
    one.die(1)
    row = DispositionRow(TOPIC, one.core.dead_letters.source, 1, 2, int(Outcome.REJECTED))
    one.core.receive(Settle(1, 1, [row]), "reader", 0.0)
    one.run()
    assert one.core.dead_letters.waiting.count == 1
    [ledger] = [row for row in one.journal.ledger.rows() if row.topic == TOPIC]
    assert (ledger.published, ledger.dead_lettered) == (1, 1)


def test_event_that_retention_took_has_a_letter_too() -> None:
    journal = MemoryJournal(Retention(count_max=1), segment_bytes=200, now_us=lambda: 1_000_000_000)
    one = desk(journal=journal, retention=RetentionSettings(count_max=1, protect_unsettled=False))
    one.publish(1, [b"x"])
    for seq in range(1, 20):
        one.publish(seq, [bytes(300)], "car/1")
    journal.trim()
    one.settle(1, 2, Outcome.REJECTED)
    [letter] = one.letters()
    assert (letter.seq, letter.has_payload, letter.payload) == (1, False, b"")


def test_letters_keep_their_seqs_when_the_journal_was_full_for_a_while() -> None:
    """A letter that could not be written at once is written later, and leaves no gap."""
    journal = MemoryJournal(staged_bytes_max=1500)
    one = desk(journal=journal)
    one.publish(1, [b"x"])
    one.publish(2, [b"x"])
    rows = [
        DispositionRow("plant/a", SOURCE, seq, seq + 1, int(Outcome.REJECTED), text="y" * 900)
        for seq in (1, 2)
    ]
    one.core.receive(Settle(1, 1, rows), "audit", 0.0)
    one.run()
    one.run()
    assert journal.held(TOPIC, one.core.dead_letters.source).ranges() == [(1, 3)]


# -- looking


def test_pages_go_both_ways_and_filters_hold() -> None:
    one = desk()
    one.die(1, 10, "plant/a")
    one.now_us += 1_000_000
    one.die(1, 10, "plant/b")
    office = one.core.dead_letter_admin
    up = office.page({"limit": 3, "after": 2})
    assert [number for number, _ in up["letters"]] == [3, 4, 5]
    down = office.page({"limit": 3, "before": 1 << 62})
    assert [number for number, _ in down["letters"]] == [20, 19, 18]
    assert len(one.letters(topic="plant/b")) == 10
    assert len(one.letters(reason="rejected", code="DATA_LOSS")) == 20
    assert one.letters(reason="expired") == []
    assert one.letters(subscriber="billing") == []
    assert len(one.letters(since_us=one.now_us)) == 10
    assert len(one.letters(until_us=one.now_us)) == 10


def test_one_answer_looks_at_a_bounded_number_of_letters() -> None:
    one = desk()
    one.die(1, 12_000)
    page = one.core.dead_letter_admin.page({"wanted": {"reason": "expired"}})
    assert (page["letters"], page["is_end"]) == ([], False)
    assert 1_000 <= page["next"] < 12_000


def test_one_answer_reads_a_bounded_number_of_bytes_in_both_directions() -> None:
    one = desk()
    for first in range(1, 41):
        one.die(first, size=200_000)
    for place in ({}, {"before": 1 << 62}):
        page = one.core.dead_letter_admin.page(place)
        assert len(page["letters"]) == -(-SCAN_BYTES_MAX // 200_000)
        assert not page["is_end"]


def test_one_redrive_publishes_on_a_bounded_number_of_topics_and_says_where_to_continue() -> None:
    one = desk()
    topics = [f"plant/{number}" for number in range(TOPICS_MAX + 20)]
    for topic in topics:
        one.die(1, topic=topic)
    last = len(topics)
    first = one.ask("redrive", stop=last).body
    assert (first["count"], first["is_end"]) == (TOPICS_MAX, False)
    second = one.ask("redrive", after=first["next"], stop=last).body
    assert (second["count"], second["is_end"]) == (20, True)
    assert all(len(one.events(topic)) == 1 for topic in topics)


def test_wrong_filter_is_refused() -> None:
    one = desk()
    with pytest.raises(ValueError, match=r"not a google\.rpc code"):
        one.core.dead_letter_admin.page({"wanted": {"code": "LATE"}})


def test_event_whose_ttl_ran_out_with_a_subscriber_is_not_tried_again_after_a_reconnection() -> None:
    one = desk()
    one.publish(1, [b"x"], ttl_ms=2000)
    one.core.tick(3.0)
    one.core.left("audit", 3.0)
    held = [Held("plant/a", SOURCE, 1, 2)]
    one.core.receive(Subscribe(1, "plant/**", "audit", Start(), 1 << 30, held), "again", 4.0)
    row = DispositionRow("plant/a", SOURCE, 1, 2, int(Outcome.RELEASED))
    one.core.receive(Settle(1, 1, [row]), "again", 4.0)
    one.run()
    one.core.tick(100.0)
    one.run()
    assert [letter.reason for letter in one.letters()] == ["expired"]


# -- redriving


def test_redriven_event_is_new_and_says_what_it_was() -> None:
    one = desk()
    one.die(1, ttl_ms=5000, priority=4, columns={"key": ["k"]})
    answer = one.ask("redrive")
    assert answer.body["topics"] == {"plant/a": 1}
    [batch] = one.events("plant/a")
    [event] = batch.events()
    assert batch.source != SOURCE
    assert event.headers["redriven"] == f"{SOURCE.hex()}:1"
    assert (event.headers["redriven-for"], event.headers["redriven-reason"]) == ("audit", "rejected")
    assert (event.payload, event.ttl_ms, batch.head.priority) == (b"1", 5000, 4)
    assert batch.columns()["key"] == ["k"]


def test_redrive_into_a_full_journal_happens_as_a_whole_or_not_at_all() -> None:
    for waiting in range(800, 1200, 16):
        one = desk(journal=MemoryJournal(staged_bytes_max=1024))
        one.die(1, size=100)
        filler = Batch.build(b"f" * 16, "plant/b", 1, [bytes(waiting - 80)], 0)
        one.journal.stage(bytes(filler.data), [filler.head])
        one.ask("redrive")
        redriven = one.core.dead_letters.letters.redriven.count
        assert len(one.events("plant/a")) == redriven
        assert one.core.dead_letters.waiting.count == 1 - redriven


def test_redriven_event_that_dies_again_knows_its_first_id() -> None:
    one = desk()
    one.die(1)
    one.ask("redrive")
    [batch] = one.events("plant/a")
    one.settled += 1
    row = DispositionRow("plant/a", batch.source, 1, 2, int(Outcome.REJECTED))
    one.core.receive(Settle(1, one.settled, [row]), "audit", 0.0)
    one.run()
    [letter] = one.letters()
    assert (letter.redriven, letter.original) == (1, f"{SOURCE.hex()}:1")
    one.ask("redrive")
    assert one.events("plant/a")[-1].events()[-1].headers["redriven"] == f"{SOURCE.hex()}:1"


def test_ttl_is_cleared_when_that_is_asked_for() -> None:
    one = desk()
    one.die(1, 2, ttl_ms=5000)
    one.ask("redrive", clears_ttl=True)
    assert [event.ttl_ms for event in one.events("plant/a")[0].events()] == [0, 0]


def test_redrive_happens_once() -> None:
    one = desk()
    one.die(1, 5)
    assert one.ask("redrive").body["count"] == 5
    assert one.ask("redrive").body["count"] == 0
    assert sum(batch.count for batch in one.events("plant/a")) == 5
    assert one.core.dead_letters.waiting.count == 0


def test_redrive_takes_only_what_fits() -> None:
    one = desk()
    one.die(1, 3, "plant/a")
    one.die(1, 3, "plant/b")
    one.ask("redrive", wanted={"topic": "plant/b"})
    assert [letter.topic for letter in one.letters()] == ["plant/a"] * 3


def test_dry_run_changes_nothing() -> None:
    one = desk()
    one.die(1, 3)
    assert one.ask("redrive", is_dry=True).body["count"] == 3
    assert one.ask("drop_dead_letters", is_dry=True).body["count"] == 3
    assert len(one.letters()) == 3
    assert one.events("plant/a") == []


def test_letter_without_payload_is_not_redriven() -> None:
    one = desk(topics=(TopicSettings(pattern=Pattern("plant/**"), dead_letter_payload=False),))
    one.die(1, 3)
    body = one.ask("redrive").body
    assert (body["count"], body["without_payload"]) == (0, 3)
    assert len(one.letters()) == 3


def test_dropped_letters_are_gone() -> None:
    one = desk()
    one.die(1, 3)
    assert one.ask("drop_dead_letters").body["count"] == 3
    assert one.letters() == []
    assert one.ask("redrive").body["count"] == 0


def test_what_became_of_letters_survives_a_restart(tmp_path: Path) -> None:
    one = desk(journal=DiskJournal(tmp_path))
    one.die(1, 3, "plant/a")
    one.die(1, 3, "plant/b")
    one.ask("redrive", wanted={"topic": "plant/a"})
    one.ask("drop_dead_letters", limit=1)
    one.journal.close()
    for _ in range(2):  # from the index, too
        again = Desk(DiskJournal(tmp_path))
        assert [(letter.topic, letter.seq) for letter in again.letters()] == [("plant/b", 2), ("plant/b", 3)]
        assert again.core.dead_letters.waiting.count == 2
        again.journal.close()


def test_crash_in_the_middle_of_a_redrive_publishes_once() -> None:
    """The record is durable and its events are not: the letters wait again."""
    journal = SimJournal()
    one = desk(journal=journal)
    one.die(1, 3)
    one.core.order(Ask(9, "redrive", {}), "admin", 0.0)
    [source] = [one for one in journal.sources("plant/a") if one != SOURCE]
    journal.commit(sync=False)
    [entry] = journal.find("plant/a", source, 1, 2)
    again = Desk(journal.crash(survives=entry.position))
    again.run()
    assert [letter.seq for letter in again.letters()] == [1, 2, 3]
    assert again.ask("redrive").body["count"] == 3
    assert sum(batch.count for batch in again.events("plant/a")) == 3


def test_crash_after_a_redrive_does_not_repeat_it() -> None:
    journal = SimJournal()
    one = desk(journal=journal)
    one.die(1, 3)
    one.core.order(Ask(9, "redrive", {}), "admin", 0.0)
    journal.commit()
    again = Desk(journal.crash())
    assert again.letters() == []
    assert sum(batch.count for batch in again.events("plant/a")) == 3


# -- bounded


def test_intake_stops_when_there_are_too_many_and_goes_on_when_there_are_not() -> None:
    one = desk(limits=LimitSettings(dead_letters_max=3))
    one.die(1, 3)
    before = len(one.told(Ack))
    one.publish(4, [b"x"])
    assert [hold.code for hold in one.told(Hold)] == [Code.RESOURCE_EXHAUSTED]
    assert len(one.told(Ack)) == before
    one.ask("drop_dead_letters", limit=1)
    assert one.told(Go)
    one.publish(4, [b"x"])
    assert len(one.told(Ack)) == before + 1


def acks(one: Desk, topic: str) -> int:
    """The last seq of a topic that is acknowledged to its publisher."""
    return max((ack.seq for ack in one.told(Ack) if ack.source == source_of(topic)), default=0)


def test_only_those_wait_whose_events_fill_the_store() -> None:
    """Everybody waited, so that one bad publisher could stop all others."""
    one = desk(limits=LimitSettings(dead_letters_max=10))
    one.die(1, 10)
    one.publish(11, [b"x"])
    [hold] = one.told(Hold)
    assert hold.sources == [SOURCE]
    assert "redrive or drop some" in hold.text
    assert list(one.core.dead_letter_guard.status()) == ["plant/a"]
    one.publish(1, [b"x"], "plant/b")
    assert (acks(one, "plant/a"), acks(one, "plant/b")) == (10, 1)
    one.settle(1, 2, Outcome.REJECTED, "plant/b", code=int(Code.DATA_LOSS))
    one.publish(2, [b"x"], "plant/b")
    assert acks(one, "plant/b") == 2, "one dead letter of two topics is less than a fair share"
    one.ask("drop_dead_letters", limit=3)
    assert one.told(Go)
    one.publish(11, [b"x"])
    assert acks(one, "plant/a") == 11
    assert one.core.dead_letter_guard.status() == {}


def test_a_topic_with_a_fair_share_waits_too() -> None:
    one = desk(limits=LimitSettings(dead_letters_max=10))
    one.die(1, 10)
    one.die(1, 5, "plant/b")
    one.publish(6, [b"x"], "plant/b")
    assert acks(one, "plant/b") == 5
    assert set(one.core.dead_letter_guard.status()) == {"plant/a", "plant/b"}


def test_at_twice_the_limit_everybody_waits() -> None:
    """Many topics, each with less than its share, do not fill the disk either."""
    one = desk(limits=LimitSettings(dead_letters_max=4))
    one.die(1, 4)
    for number in range(4):
        one.die(1, 1, f"plant/{number}")
    one.publish(1, [b"x"], "plant/new")
    assert acks(one, "plant/new") == 0
    assert one.core.intake.is_full
    one.ask("drop_dead_letters", limit=8)
    one.publish(1, [b"x"], "plant/new")
    assert acks(one, "plant/new") == 1


def test_a_topic_has_a_limit_of_its_own() -> None:
    rule = TopicSettings(pattern=Pattern("plant/a"), dead_letters_max=2)
    one = desk(topics=(rule,))
    one.die(1, 2)
    one.publish(3, [b"x"])
    one.die(1, 5, "plant/b")
    one.publish(6, [b"x"], "plant/b")
    assert (acks(one, "plant/a"), acks(one, "plant/b")) == (2, 6)
    assert "dead_letters_max" in one.core.dead_letter_guard.status()["plant/a"]
    one.ask("redrive", wanted={"topic": "plant/a"})
    one.publish(3, [b"x"])
    assert acks(one, "plant/a") == 3


@pytest.mark.parametrize("full", ["stop_intake", "drop_oldest"])
def test_the_shares_are_those_of_the_letters_that_wait_also_after_a_restart(full: Any) -> None:
    journal = MemoryJournal()
    some = {"limits": LimitSettings(dead_letters_max=6), "dispatch": DispatchSettings(dead_letters_full=full)}
    one = desk(journal=journal, **some)
    for seq in range(1, 4):
        one.die(seq, 1)
        one.die(2 * seq - 1, 2, "plant/b")
    one.ask("drop_dead_letters", limit=1)
    one.ask("redrive", wanted={"topic": "plant/b"}, limit=1)
    again = Desk(journal, **some)
    for core in (one.core, again.core):
        counts: dict[str, int] = {}
        for letter in one.letters():
            counts[letter.topic] = counts.get(letter.topic, 0) + 1
        shares = core.dead_letters.waiting.shares.topics
        assert {topic: share.count for topic, share in shares.items()} == counts


def test_intake_stays_stopped_after_a_restart() -> None:
    journal = MemoryJournal()
    one = desk(journal=journal, limits=LimitSettings(dead_letters_max=3))
    one.die(1, 3)
    again = Desk(journal, limits=LimitSettings(dead_letters_max=3))
    again.run()
    again.publish(4, [b"x"])
    assert again.told(Hold)
    assert not again.told(Ack)


def test_oldest_letters_go_when_that_is_configured_and_are_counted() -> None:
    one = desk(
        limits=LimitSettings(dead_letters_max=3), dispatch=DispatchSettings(dead_letters_full="drop_oldest")
    )
    one.die(1, 3)
    one.die(4, 2)
    assert [letter.seq for letter in one.letters()] == [3, 4, 5]
    assert one.core.dead_letter_admin.counts() == {"waiting": 3, "redriven": 0, "dropped": 2}
    assert not one.told(Hold)


def test_letters_are_bounded_by_bytes_too() -> None:
    """At the limit intake stops, also after a restart; what is redriven or dropped makes room."""
    journal, limits = MemoryJournal(), LimitSettings(dead_letters_bytes_max=5_000)
    one = desk(journal=journal, limits=limits)
    one.die(1, 3, size=1_000)
    assert not one.told(Hold)
    one.die(4, 2, size=1_000)
    one.publish(6, [b"x"])
    [hold] = one.told(Hold)
    assert "limits.dead_letters_bytes_max" in hold.text
    again = Desk(journal, limits=limits)
    again.run()
    assert again.core.dead_letters.waiting.bytes == one.core.dead_letters.waiting.bytes >= 5_000
    again.publish(6, [b"x"])
    assert not again.told(Ack)
    again.ask("drop_dead_letters", limit=2)
    assert again.told(Go)
    again.publish(6, [b"x"])
    assert again.told(Ack)
    assert again.ask("redrive").body["count"] == 3
    assert (again.core.dead_letters.waiting.count, again.core.dead_letters.waiting.bytes) == (0, 0)


def test_oldest_letters_go_when_they_have_too_many_bytes() -> None:
    one = desk(
        limits=LimitSettings(dead_letters_bytes_max=5_000, dead_letters_max=100),
        dispatch=DispatchSettings(dead_letters_full="drop_oldest"),
    )
    for seq in range(1, 9):
        one.die(seq, size=1_000)
    kept = [letter.seq for letter in one.letters()]
    assert kept == list(range(9 - len(kept), 9))
    assert 3 <= len(kept) <= 4
    one.die(9, size=20_000)
    assert [letter.seq for letter in one.letters()] == [9]
    assert one.core.dead_letter_admin.counts() == {"waiting": 1, "redriven": 0, "dropped": 8}
    assert not one.told(Hold)


@pytest.mark.parametrize("is_protected", [True, False])
def test_retention_spares_letters_that_wait(is_protected: bool) -> None:
    journal = MemoryJournal(Retention(count_max=1), segment_bytes=200)
    retention = RetentionSettings(count_max=1, protect_unsettled=is_protected)
    one = desk(journal=journal, retention=retention)
    one.die(1, 2)
    for seq in range(3, 20):
        one.publish(seq, [bytes(300)])
        one.settle(seq, seq + 1, Outcome.ACCEPTED)
    one.core.trim(0.0)
    assert [letter.payload for letter in one.letters()] == [b"1", b"2"]
    one.ask("drop_dead_letters")
    one.core.trim(0.0)
    assert journal.first_held("plant/a", SOURCE) > 2


def test_wanted_knows_everything_that_it_is_asked() -> None:
    assert DeadLetterFilter.__struct_fields__ == (
        "reason",
        "topic",
        "code",
        "subscriber",
        "since_us",
        "until_us",
    )
