"""The contract of every journal, in memory or on disk."""

from __future__ import annotations

import threading

import pytest

from reknit.batch import Batch
from reknit.entries import Removed
from reknit.errors import Closed, Gone, JournalFull, LocalError
from reknit.outcome import FinalOutcome
from reknit.records import (
    OutcomeRow,
    Outcomes,
    SubscriberClosed,
    SubscriberOpened,
    TopicPaused,
    TopicResumed,
)
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.store.log.retention import Retention
from reknit.store.memory import SimJournal
from tests.store.journals import SOURCE_A, SOURCE_B, Maker, batch, entries, keep, spans, stage

# -- staging and committing


def test_positions_are_given_when_staged_and_follow_each_other(journal: Journal) -> None:
    one, two = batch(1, 3), batch(4, 2)
    assert stage(journal, one) == 0
    assert stage(journal, two) == len(one.data)
    assert journal.staged_end == len(one.data) + len(two.data)
    assert journal.staged_bytes == journal.staged_end


def test_nothing_staged_is_read_before_it_is_committed(journal: Journal) -> None:
    stage(journal, batch(1))
    run = journal.read(0)
    assert (run.next_position, list(run.entries), len(run.data)) == (0, [], 0)
    assert journal.find("t/a", SOURCE_A, 1, 2) == []
    assert journal.commit() == journal.end == journal.staged_end
    assert spans(journal.read(0).entries) == [("t/a", SOURCE_A, 1, 2)]


def test_commit_without_sync_makes_visible_too(journal: Journal) -> None:
    stage(journal, batch(1))
    assert journal.commit(sync=False) == journal.staged_end
    assert len(entries(journal)) == 1
    assert journal.commit() == journal.end


def test_commit_of_nothing_gives_the_end(journal: Journal) -> None:
    keep(journal, batch(1))
    assert journal.commit() == journal.end


def test_a_full_stage_refuses_and_changes_nothing(maker: Maker) -> None:
    maker.staged_bytes_max = 500
    journal = maker.open()
    stage(journal, batch(1, 20))
    before = journal.staged_end
    with pytest.raises(JournalFull, match="free space or lower retention"):
        stage(journal, batch(21, 20))
    assert journal.staged_end == before
    assert journal.ledger.published["t/a", SOURCE_A].last == 20
    journal.commit()
    assert stage(journal, batch(21, 20)) == before
    journal.close()


def test_records_have_more_room_than_batches(maker: Maker) -> None:
    maker.staged_bytes_max = 400
    journal = maker.open()
    stage(journal, batch(1, 20))
    with pytest.raises(JournalFull):
        stage(journal, batch(21, 5))
    journal.stage_record(SubscriberClosed("x"))
    journal.close()


def test_a_run_longer_than_the_limit_is_taken_when_nothing_waits(maker: Maker) -> None:
    maker.staged_bytes_max = 100
    journal = maker.open()
    keep(journal, batch(1, 100))
    assert len(entries(journal)) == 1
    journal.close()


def test_a_closed_journal_takes_nothing(journal: Journal) -> None:
    keep(journal, batch(1))
    journal.close()
    with pytest.raises(Closed):
        stage(journal, batch(2))
    assert journal.commit() == journal.checkpoint() == journal.end
    assert journal.trim() == []
    journal.close()


# -- reading by position


def test_read_gives_whole_batches_in_the_order_they_were_staged(journal: Journal) -> None:
    keep(journal, batch(1), batch(1, source=SOURCE_B), batch(2))
    keep(journal, batch(2, source=SOURCE_B))
    assert [(s, f) for _, s, f, _ in spans(entries(journal))] == [
        (SOURCE_A, 1),
        (SOURCE_B, 1),
        (SOURCE_A, 2),
        (SOURCE_B, 2),
    ]


@pytest.mark.parametrize("max_bytes", [1, 100, 130, 300, 1 << 20])
def test_read_keeps_to_its_limit_but_gives_one_batch_at_least(journal: Journal, max_bytes: int) -> None:
    for first in range(1, 60, 3):
        keep(journal, batch(first), batch(first + 1), batch(first + 2))
    found = entries(journal, max_bytes=max_bytes)
    assert [entry.head.first for entry in found] == list(range(1, 61))
    run = journal.read(0, max_bytes=max_bytes)
    assert len(run.data) <= max(max_bytes, run.entries[0].head.length)


def test_read_stops_where_it_is_told(journal: Journal) -> None:
    keep(journal, batch(1), batch(2), batch(3))
    first, second, _ = entries(journal)
    assert spans(journal.read(0, stop=second.end).entries) == spans([first, second])
    assert spans(journal.read(0, stop=second.end - 1).entries) == spans([first])
    assert journal.read(0, stop=first.end - 1).next_position == 0


def test_a_run_starts_anywhere_a_batch_starts(journal: Journal) -> None:
    keep(journal, *[batch(first) for first in range(1, 30)])
    for entry in entries(journal):
        run = journal.read(entry.position)
        assert run.position == entry.position
        assert Batch.parse(run.data).first == entry.head.first


def test_a_position_inside_a_batch_is_refused(journal: Journal) -> None:
    keep(journal, batch(1, 10), batch(11, 10))
    with pytest.raises(LocalError, match="inside a record"):
        journal.read(8)


def test_reading_past_the_end_gives_nothing(journal: Journal) -> None:
    keep(journal, batch(1))
    run = journal.read(journal.end + 80)
    assert (run.next_position, list(run.entries)) == (journal.end + 80, [])


def test_records_are_not_in_runs(journal: Journal) -> None:
    keep(journal, batch(1))
    journal.stage_record(SubscriberClosed("x"))
    journal.stage_record(SubscriberClosed("y"))
    keep(journal, batch(2))
    journal.stage_record(SubscriberClosed("z"))
    journal.commit()
    assert [entry.head.first for entry in entries(journal)] == [1, 2]
    found, after = journal.records(0)
    assert [record.name for _, record in found if isinstance(record, SubscriberClosed)] == ["x", "y", "z"]
    assert after == journal.end


def test_records_are_read_in_pieces(journal: Journal) -> None:
    names = [f"subscriber {number}" for number in range(40)]
    for name in names:
        journal.stage_record(SubscriberClosed(name))
    journal.commit()
    position, got = 0, []
    while position < journal.end:
        found, position = journal.records(position, max_bytes=200)
        got += [record.name for _, record in found if isinstance(record, SubscriberClosed)]
    assert got == names


# -- finding by seq


def test_find_gives_the_batches_that_overlap_in_seq_order(journal: Journal) -> None:
    keep(journal, batch(1, 10), batch(11, 10), batch(21, 10))
    keep(journal, batch(1, 10, source=SOURCE_B))
    found = journal.find("t/a", SOURCE_A, 10, 22)
    assert spans(found) == [("t/a", SOURCE_A, first, first + 10) for first in (1, 11, 21)]
    assert spans(journal.find("t/a", SOURCE_A, 11, 12)) == [("t/a", SOURCE_A, 11, 21)]
    assert journal.find("t/a", SOURCE_A, 31, 99) == []
    assert journal.find("t/a", SOURCE_A, 5, 5) == []
    assert journal.find("t/b", SOURCE_A, 1, 99) == []


def test_find_sorts_what_came_out_of_order(journal: Journal) -> None:
    for first in (21, 1, 11, 31):
        keep(journal, batch(first, 10))
    assert [entry.head.first for entry in journal.find("t/a", SOURCE_A, 1, 99)] == [1, 11, 21, 31]
    journal.checkpoint()
    assert [entry.head.first for entry in journal.find("t/a", SOURCE_A, 15, 25)] == [11, 21]


def test_find_sees_through_a_checkpoint(journal: Journal) -> None:
    keep(journal, *[batch(first, topic="t/a") for first in range(1, 20)])
    journal.checkpoint()
    keep(journal, *[batch(first, topic="t/a") for first in range(20, 40)])
    assert [entry.head.first for entry in journal.find("t/a", SOURCE_A, 1, 99)] == list(range(1, 40))
    journal.checkpoint()
    assert [entry.head.first for entry in journal.find("t/a", SOURCE_A, 5, 30)] == list(range(5, 30))


def test_find_gives_as_many_as_fit(journal: Journal) -> None:
    keep(journal, *[batch(first) for first in range(1, 20)])
    one = journal.find("t/a", SOURCE_A, 1, 2)[0].head.length
    assert len(journal.find("t/a", SOURCE_A, 1, 99, max_bytes=3 * one)) == 3
    assert len(journal.find("t/a", SOURCE_A, 1, 99, max_bytes=1)) == 1


def test_fetch_gives_the_very_bytes(journal: Journal) -> None:
    one, two = batch(1, 10), batch(11, 10)
    keep(journal, one, two)
    entry = journal.find("t/a", SOURCE_A, 11, 12)[0]
    assert bytes(journal.fetch(entry)) == bytes(two.data)


# -- the ledger


def test_records_and_batches_are_booked_when_staged(journal: Journal) -> None:
    journal.stage_record(SubscriberOpened.at("audit", "t/*", {("t/a", SOURCE_A): 3}, 0, 1))
    stage(journal, batch(1, 10))
    rows = [
        OutcomeRow("t/a", SOURCE_A, 3, 6, FinalOutcome.ACCEPTED),
        OutcomeRow("t/a", SOURCE_A, 6, 7, FinalOutcome.LOST),
    ]
    journal.stage_record(Outcomes("audit", rows, floor=40))
    (row,) = journal.ledger.rows()
    assert (row.published, row.accepted, row.lost, row.in_flight) == (8, 3, 1, 4)
    assert journal.ledger.accounts["audit"].floor == 40
    journal.stage_record(SubscriberClosed("audit"))
    assert journal.ledger.accounts == {}


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_an_outcome_that_can_not_be_is_told_also_after_opening_again(
    lasting: Maker, checkpoints: int
) -> None:
    """It ended, and nobody published it, or the subscriber does not follow its topic."""
    journal = lasting.open()
    fill_ledger(journal, 0)
    never = [OutcomeRow("t/z", SOURCE_B, 1, 2, FinalOutcome.ACCEPTED)]
    elsewhere = [OutcomeRow("t/a", SOURCE_A, 1, 200, FinalOutcome.ACCEPTED)]
    journal.stage_record(Outcomes("audit", never))
    journal.stage_record(Outcomes("gone", elsewhere))
    for _ in range(checkpoints):
        journal.checkpoint()
    wrong = [(row.subscriber, row.topic) for row in journal.ledger.rows() if not row.balanced]
    assert wrong == [("audit", "t/z"), ("gone", "t/a")]
    again = lasting.reopen(journal)
    assert [(row.subscriber, row.topic) for row in again.ledger.rows() if not row.balanced] == wrong
    again.close()


@pytest.mark.parametrize("checkpoints", [0, 1, 3])
def test_the_ledger_is_the_same_after_opening_again(lasting: Maker, checkpoints: int) -> None:
    journal = lasting.open()
    fill_ledger(journal, checkpoints)
    rows, accounts = journal.ledger.rows(), journal.ledger.accounts
    again = lasting.reopen(journal)
    assert again.ledger.rows() == rows
    assert again.ledger.accounts == accounts
    again.close()


def fill_ledger(journal: Journal, checkpoints: int) -> None:
    journal.stage_record(SubscriberOpened.at("gone", "**", {}, 0, 1))
    journal.stage_record(SubscriberOpened.at("audit", "t/*", {("t/a", SOURCE_A): 3}, 0, 1))
    for first in range(1, 100, 10):
        stage(journal, batch(first, 10), batch(first, 5, "t/b", SOURCE_B))
        for name in ("audit", "gone"):
            row = OutcomeRow("t/a", SOURCE_A, first + 2, first + 4, FinalOutcome.ACCEPTED)
            journal.stage_record(Outcomes(name, [row], floor=first))
        if checkpoints and first % (91 // checkpoints) < 10:
            journal.checkpoint()
    journal.stage_record(SubscriberClosed("gone"))
    journal.stage_record(SubscriberOpened.at("gone", "t/b", {}, 7, 1))
    journal.stage_record(Outcomes("unknown", [OutcomeRow("t/z", SOURCE_B, 1, 2, FinalOutcome.ACCEPTED)]))


def test_paused_topics_are_remembered(lasting: Maker) -> None:
    journal = lasting.open()
    for record in (TopicPaused("a/**"), TopicPaused("b"), TopicResumed("a/**")):
        journal.stage_record(record)
    assert journal.paused == {"b"}
    again = lasting.reopen(journal)
    assert again.paused == {"b"}
    again.close()


# -- opening again


def test_everything_is_there_after_opening_again(lasting: Maker) -> None:
    journal = lasting.open()
    for first in range(1, 100):
        keep(journal, batch(first), batch(first, 3, "t/b", SOURCE_B))
    before, end = spans(entries(journal)), journal.end
    again = lasting.reopen(journal)
    assert again.report.clean
    assert (spans(entries(again)), again.end) == (before, end)
    assert keep(again, batch(100)) == end
    assert again.sources("t/a") == {SOURCE_A: 100}
    assert [entry.head.first for entry in again.find("t/a", SOURCE_A, 50, 101)] == list(range(50, 101))
    again.close()


# -- asking


def test_topics_and_sources_are_known_with_their_last_seq(journal: Journal) -> None:
    keep(journal, batch(1, 5), batch(3, 2, "t/b", SOURCE_B), batch(1, 2, "t/b", SOURCE_B))
    assert journal.topics() == ["t/a", "t/b"]
    assert journal.sources("t/b") == {SOURCE_B: 4}
    assert journal.sources("t/c") == {}


def test_status_counts_what_is_held(journal: Journal) -> None:
    keep(journal, batch(1, 5), batch(6, 7))
    status = journal.status()
    assert (status.events, status.bytes, status.streams) == (12, journal.end, 1)
    assert (status.start, status.end, status.staged_end) == (0, journal.end, journal.end)


def test_position_at_a_time_is_never_too_late(maker: Maker) -> None:
    journal = maker.open()
    times = []
    for first in range(1, 50):
        maker.clock.us += 1_000
        times.append((maker.clock.us, keep(journal, batch(first))))
        if first % 20 == 0:
            journal.checkpoint()
    for time_us, position in times:
        assert journal.position_at(time_us) == position
        assert journal.position_at(time_us - 1) <= position
    assert journal.position_at(0) == 0
    assert journal.position_at(-(10**16)) == 0
    assert journal.position_at(maker.clock.us + 1) == journal.end
    journal.close()


def test_marks_are_sparse(maker: Maker) -> None:
    maker.mark_us = 10_000
    journal = maker.open()
    positions = []
    for first in range(1, 31):
        positions.append(keep(journal, batch(first)))
        maker.clock.us += 1_000
    start_us = maker.clock.us - 30_000
    assert journal.position_at(start_us + 9_000) == 0
    assert journal.position_at(start_us + 10_000) == positions[10]
    assert journal.position_at(start_us + 19_000) == positions[10]
    journal.close()


# -- retention


def test_retention_by_count_removes_whole_segments(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=50))
    for first in range(1, 301):
        keep(journal, batch(first))
    removed = journal.trim()
    start = removed[0].stop
    assert removed == [Removed("t/a", SOURCE_A, 1, start)]
    held = [entry.head.first for entry in entries(journal)]
    assert held == list(range(start, 301))
    assert 50 <= len(held) < 50 + 30
    assert journal.first_held("t/a", SOURCE_A) == start
    assert journal.find("t/a", SOURCE_A, 1, 301) == entries(journal)
    assert journal.status().events == len(held)
    assert journal.trim() == []
    journal.close()


def test_retention_by_bytes_keeps_below_its_limit(maker: Maker) -> None:
    journal = maker.open(Retention(bytes_max=16_000))
    for first in range(1, 301):
        keep(journal, batch(first))
    journal.trim()
    assert journal.end - journal.start <= 16_000
    assert journal.status().bytes == journal.end - journal.start
    journal.close()


def test_retention_by_age_removes_what_is_old(maker: Maker) -> None:
    journal = maker.open(Retention(age_s_max=10))
    for first in range(1, 101):
        maker.clock.us += 1_000_000
        keep(journal, batch(first))
    journal.trim()
    held = [entry.head.first for entry in entries(journal)]
    assert held[-1] == 100
    assert 10 <= len(held) < 10 + 30
    journal.close()


def test_age_removes_everything_where_nothing_new_comes(maker: Maker) -> None:
    maker.segment_bytes = 1 << 20
    journal = maker.open(Retention(age_s_max=10))
    keep(journal, batch(1, 5))
    journal.trim()
    assert len(entries(journal)) == 1
    maker.clock.us += 11_000_000
    assert journal.trim() == [Removed("t/a", SOURCE_A, 1, 6)]
    end = journal.end
    assert (journal.start, entries(journal), journal.status().events) == (end, [], 0)
    assert journal.trim() == []
    assert keep(journal, batch(6)) == end
    assert [entry.head.first for entry in entries(journal)] == [6]
    journal.close()


def test_large_segments_are_begun_anew_when_little_is_to_be_kept(maker: Maker) -> None:
    maker.segment_bytes = 1 << 30
    journal = maker.open(Retention(count_max=400))
    for first in range(1, 2_001, 10):
        keep(journal, batch(first, 10, size=50))
    journal.trim()
    assert 400 <= journal.status().events <= 600
    journal.close()


def test_everything_can_be_gone_and_opened_again(lasting: Maker) -> None:
    journal = lasting.open(Retention(age_s_max=10))
    keep(journal, batch(1, 5))
    lasting.clock.us += 11_000_000
    journal.trim()
    end = journal.end
    again = lasting.reopen(journal)
    assert again.report.clean
    assert (again.start, again.end, entries(again)) == (end, end, [])
    assert again.first_held("t/a", SOURCE_A) == 6
    assert again.held("t/a", SOURCE_A).ranges() == []
    assert keep(again, batch(6)) == end
    assert again.held("t/a", SOURCE_A).ranges() == [(6, 7)]
    again.close()


def test_what_was_removed_is_told(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=10))
    for first in range(1, 101):
        keep(journal, batch(first))
    old = journal.find("t/a", SOURCE_A, 1, 2)[0]
    journal.trim()
    for ask in (lambda: journal.read(0), lambda: journal.fetch(old)):
        with pytest.raises(Gone) as told:
            ask()
        assert told.value.first_held == journal.start
    assert journal.first_held("t/a", SOURCE_A) > 1
    assert journal.first_held("t/a", SOURCE_B) == 1
    assert journal.position_at(0) == journal.start
    journal.close()


def test_a_stream_that_is_gone_is_held_from_its_next_seq(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=10))
    keep(journal, batch(1, 3, "t/b", SOURCE_B))
    for first in range(1, 101):
        keep(journal, batch(first))
    removed = journal.trim()
    assert Removed("t/b", SOURCE_B, 1, 4) in removed
    assert journal.first_held("t/b", SOURCE_B) == 4
    assert journal.sources("t/b") == {SOURCE_B: 3}
    assert journal.find("t/b", SOURCE_B, 1, 9) == []
    keep(journal, batch(4, 1, "t/b", SOURCE_B))
    assert [entry.head.first for entry in journal.find("t/b", SOURCE_B, 1, 9)] == [4]
    journal.close()


def test_a_floor_protects_what_is_after_it(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=10))
    positions = [keep(journal, batch(first)) for first in range(1, 101)]
    assert journal.trim(floor=0) == []
    journal.trim(floor=positions[40])
    assert 0 < journal.start <= positions[40]
    assert journal.read(positions[40]).entries[0].head.first == 41
    journal.close()


def test_retention_is_remembered(lasting: Maker) -> None:
    journal = lasting.open(Retention(count_max=10))
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    for first in range(1, 101):
        keep(journal, batch(first))
    journal.trim()
    rows, start, held = journal.ledger.rows(), journal.start, journal.first_held("t/a", SOURCE_A)
    again = lasting.reopen(journal)
    assert (again.ledger.rows(), again.start, again.first_held("t/a", SOURCE_A)) == (rows, start, held)
    assert [entry.head.first for entry in entries(again)] == list(range(held, 101))
    again.close()


def test_what_was_filled_in_late_does_not_hide_what_is_gone(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=10))
    keep(journal, batch(50, 10))
    for first in range(1, 50):
        keep(journal, batch(first))
    journal.trim()
    # 50..59 are gone although lower ones are held: nothing from 60 on is missing, and that is what is said.
    assert journal.first_held("t/a", SOURCE_A) == 60
    assert journal.find("t/a", SOURCE_A, 50, 60) == []
    journal.close()


# -- threads


def test_stage_commit_checkpoint_and_read_at_the_same_time(maker: Maker) -> None:
    maker.segment_bytes = 20_000
    journal = maker.open()
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat(act: object) -> None:
        assert callable(act)
        try:
            while not done.is_set():
                act()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(act,)) for act in (journal.commit, journal.checkpoint)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    position = 0
    for first in range(1, 1_500):
        stage(journal, batch(first), batch(first, 1, "t/b", SOURCE_B))
        end = journal.end
        run = journal.read(position)
        seen += [entry.head.first for entry in run.entries if entry.head.source == SOURCE_A]
        position = run.next_position
        if first % 50 == 0 and position > 0:
            kept = seen[-1]
            assert [e.head.first for e in journal.find("t/a", SOURCE_A, 1, kept + 1)] == seen
        assert end <= journal.end
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    journal.commit()
    seen += [entry.head.first for entry in entries(journal, position) if entry.head.source == SOURCE_A]
    assert seen == list(range(1, 1_500))
    journal.close()


def test_removing_while_others_read_and_write(maker: Maker) -> None:
    journal = maker.open(Retention(count_max=100))
    done = threading.Event()
    removed: list[Removed] = []
    failures: list[BaseException] = []

    def trim() -> None:
        try:
            while not done.is_set():
                journal.commit()
                removed.extend(journal.trim())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=trim)
    thread.start()
    for first in range(1, 1_000):
        stage(journal, batch(first))
        found = read_from_the_start(journal)
        assert found == list(range(found[0], found[0] + len(found))) if found else True
        last = journal.first_held("t/a", SOURCE_A) + 2
        held = [entry.head.first for entry in journal.find("t/a", SOURCE_A, 1, last)]
        assert held == sorted(held)
    done.set()
    thread.join()
    assert failures == []
    journal.commit()
    removed.extend(journal.trim())  # the thread may not have had its turn
    assert SeqSet.from_ranges((one.start, one.stop) for one in removed).range_count == 1
    journal.close()


def read_from_the_start(journal: Journal) -> list[int]:
    """The first seqs of the first run; the start may move under our feet."""
    while True:
        try:
            return [entry.head.first for entry in journal.read(journal.start).entries]
        except Gone:
            continue


# -- a simulated crash


def test_a_simulated_crash_loses_what_was_not_synced() -> None:
    journal = SimJournal()
    keep(journal, batch(1))
    stage(journal, batch(2))
    journal.commit(sync=False)
    stage(journal, batch(3))
    assert [entry.head.first for entry in entries(journal.crash())] == [1]


def test_a_simulated_kill_leaves_what_was_written() -> None:
    journal = SimJournal()
    keep(journal, batch(1))
    stage(journal, batch(2), batch(3))
    journal.commit(sync=False)
    stage(journal, batch(4))
    second = entries(journal)[1]
    again = journal.crash(survives=second.end + 8)
    assert [entry.head.first for entry in entries(again)] == [1, 2]
    assert again.ledger.published["t/a", SOURCE_A].last == 2
    assert again.staged_end == again.end == second.end
    assert keep(again, batch(3)) == second.end
