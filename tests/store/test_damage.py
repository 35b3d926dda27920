"""Logs that were cut, overwritten or have flipped bits: which open, which are reported and which are refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.entries import Entry, Removed
from reknit.errors import JournalCorrupt
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.directory import opening
from reknit.store.directory.repair import repair
from reknit.store.directory.verification import verify_journal
from reknit.store.disk import DiskJournal
from reknit.store.log.segment_files import segment_path, segment_starts
from tests.store.journals import SOURCE_A, SOURCE_B, batch, entries, keep, spans, stage

LAST = 40
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Memory, if there is some: nothing here depends on a disk's own speed or promises."""


class Template:
    """A journal's directory, and what is in it."""

    def __init__(self, directory: Path, found: list[Entry], end: int, is_closed: bool) -> None:
        self.directory, self.entries, self.end, self.is_closed = directory, found, end, is_closed

    @contextmanager
    def copied(self) -> Iterator[Path]:
        with TemporaryDirectory(dir=SCRATCH) as place:
            copy = Path(place) / "journal"
            shutil.copytree(self.directory, copy)
            yield copy


def open_journal(directory: Path, segment_bytes: int = 1 << 20) -> DiskJournal:
    return DiskJournal(directory, segment_bytes=segment_bytes, preallocate_bytes=4_096)


def fill(directory: Path, segment_bytes: int) -> DiskJournal:
    journal = open_journal(directory, segment_bytes)
    journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
    for seq in range(1, LAST + 1):
        stage(journal, batch(seq), batch(2 * seq - 1, 2, "t/b", SOURCE_B))
        journal.stage_record(
            Outcomes("audit", [OutcomeRow("t/a", SOURCE_A, seq, seq + 1, FinalOutcome.ACCEPTED)])
        )
        journal.commit()
        if seq == LAST // 2:
            journal.checkpoint()
    return journal


def make_template(place: Path, segment_bytes: int, is_closed: bool) -> Template:
    """Closed, or as a killed process leaves it: with preallocated zeros, and half of it not in the index."""
    journal = fill(place / "made", segment_bytes)
    found, end = entries(journal), journal.end
    if not is_closed:
        shutil.copytree(place / "made", place / "killed")
    journal.close()
    return Template(place / ("made" if is_closed else "killed"), found, end, is_closed)


@pytest.fixture(scope="module", params=["closed", "killed"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    place = tmp_path_factory.mktemp("template")
    return make_template(place, 1 << 20, request.param == "closed")


@pytest.fixture(scope="module", params=["closed", "killed"])
def pieces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The same in many small files."""
    place = tmp_path_factory.mktemp("pieces")
    return make_template(place, 2_000, request.param == "closed")


def log_file(directory: Path) -> Path:
    (start,) = segment_starts(directory / "log")
    return segment_path(directory / "log", start)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def missing(template: Template, kept: int) -> list[Removed]:
    """The events that the journal lacks if it has only its first `kept` entries."""
    gone: dict[tuple[str, bytes], list[int]] = {}
    for entry in template.entries[kept:]:
        head = entry.head
        bounds = gone.setdefault((head.topic, head.source), [head.first, head.stop])
        bounds[1] = head.stop
    return [Removed(*stream, *bounds) for stream, bounds in gone.items()]


def check_opens_with_first(template: Template, directory: Path, kept: int) -> DiskJournal:
    """It opens with exactly the first `kept` batches, and goes on at a position that was never used."""
    journal = open_journal(directory)
    assert spans(entries(journal)) == spans(template.entries[:kept])
    for one in missing(template, kept):
        assert journal.find(one.topic, one.source, one.start, one.stop) == []
        if template.is_closed:  # else the index has seen only half of it
            assert journal.first_held(one.topic, one.source) == one.stop
    journal.close()
    journal, first = open_journal(directory), journal
    assert journal.report.clean, str(journal.report)
    assert spans(entries(journal)) == spans(template.entries[:kept])
    position = keep(journal, batch(1_000, topic="t/c"))
    assert position >= template.end
    assert spans(journal.find("t/c", SOURCE_A, 1_000, 1_001)) == [("t/c", SOURCE_A, 1_000, 1_001)]
    held = spans(entries(journal))
    journal.close()
    again = open_journal(directory)
    assert again.report.clean
    assert spans(entries(again)) == held
    again.close()
    assert verify_journal(directory).damages == ()
    return first


def entries_before(template: Template, offset: int) -> int:
    return sum(entry.end <= offset for entry in template.entries)


# -- the tail


@given(data=st.data())
def test_a_log_cut_at_any_byte_opens_with_what_is_whole(template: Template, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, template.end - 1))
    with template.copied() as directory:
        with log_file(directory).open("r+b") as file:
            file.truncate(offset)
        kept = entries_before(template, offset)
        journal = check_opens_with_first(template, directory, kept)
        report = journal.report
        assert not report.clean
        assert str(report)
        assert report.missing_bytes > 0
        if template.is_closed:
            assert report.cut_position is not None
            assert set(report.lost) == set(missing(template, kept))


@given(garbage=st.binary(min_size=1, max_size=300))
def test_garbage_behind_the_end_is_put_aside(template: Template, garbage: bytes) -> None:
    with template.copied() as directory:
        path = log_file(directory)
        path.write_bytes(path.read_bytes()[: template.end] + garbage)
        journal = check_opens_with_first(template, directory, len(template.entries))
        report = journal.report
        assert report.lost == ()
        shown = garbage.rstrip(b"\0")
        assert report.cut_bytes == len(shown)
        if shown:
            assert Path(report.cut_file).read_bytes() == shown
            assert report.cut_position == template.end


@given(data=st.data())
def test_a_flip_in_the_last_frame_is_a_torn_tail(template: Template, data: st.DataObject) -> None:
    with template.copied() as directory:
        start = last_frame(directory, template.end)
        offset = data.draw(st.integers(start, template.end - 1))
        flip(log_file(directory), offset, data.draw(st.integers(0, 7)))
        journal = check_opens_with_first(template, directory, entries_before(template, start))
        assert journal.report.cut_position == start
        assert Path(journal.report.cut_file).exists()


def last_frame(directory: Path, end: int) -> int:
    """Where the last frame, which is a record, starts."""
    return (
        end
        - len(log_file(directory).read_bytes()[:end])
        + log_file(directory).read_bytes()[:end].rfind(b"RK\x03")
    )


# -- the middle


@given(data=st.data())
def test_a_flip_in_the_middle_is_refused_by_place(template: Template, data: st.DataObject) -> None:
    with template.copied() as directory:
        entry = data.draw(st.sampled_from(template.entries))
        offset = data.draw(st.integers(entry.position, entry.end - 1))
        path = log_file(directory)
        flip(path, offset, data.draw(st.integers(0, 7)))
        before = path.read_bytes()
        with pytest.raises(JournalCorrupt, match="reknit journal repair") as refused:
            open_journal(directory)
        assert (refused.value.path, refused.value.offset) == (str(path), entry.position)
        assert path.read_bytes() == before
        (damage,) = verify_journal(directory).damages
        assert (damage.path, damage.offset) == (str(path), entry.position)


@given(data=st.data())
def test_repair_sets_the_damage_aside_and_tells_what_is_lost(template: Template, data: st.DataObject) -> None:
    with template.copied() as directory:
        entry = data.draw(st.sampled_from(template.entries))
        flip(log_file(directory), data.draw(st.integers(entry.position, entry.end - 1)))
        report = repair(directory)
        (damage,) = report.damages
        assert (damage.position, damage.stop) == (entry.position, entry.end)
        assert len(Path(damage.aside).read_bytes()) == entry.head.length
        head = entry.head
        is_last = not template.is_closed and entry is template.entries[-1]
        if (
            report.lost or not is_last
        ):  # only the damaged head itself speaks of the last, unindexed batch of a source
            assert report.lost == (Removed(head.topic, head.source, head.first, head.stop),)
            assert head.source.hex() in str(report)
        assert verify_journal(directory).damages == ()
        journal = open_journal(directory)
        rest = [one for one in template.entries if one is not entry]
        assert [(one.position, one.head) for one in entries(journal)] == [
            (one.position, one.head) for one in rest
        ]
        assert journal.find(head.topic, head.source, head.first, head.stop) == []
        row = journal.ledger.rows()[0]
        assert (row.topic, row.accepted) == ("t/a", LAST)
        assert row.balanced
        assert journal.report.set_aside == report.lost
        published = journal.ledger.published[head.topic, head.source]
        assert published.covers(head.first, head.stop) is bool(report.lost)
        journal.close()


def test_repair_of_a_sound_journal_changes_nothing(template: Template) -> None:
    with template.copied() as directory:
        report = repair(directory)
        assert str(report) == "nothing is damaged"
        journal = open_journal(directory)
        assert spans(entries(journal)) == spans(template.entries)
        assert len(journal.find("t/b", SOURCE_B, 1, 2 * LAST + 1)) == LAST
        journal.close()


def test_damage_that_opening_does_not_look_for_is_found_when_read(
    pieces: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "VERIFIED_BYTES", 8)
    entry, after = pieces.entries[5:7]
    with pieces.copied() as directory:
        flip(segment_path(directory / "log", 0), entry.end - 1)
        journal = open_journal(directory)
        assert len(journal.read(0).entries) <= 5
        assert spans(entries(journal)) == spans([one for one in pieces.entries if one is not entry])
        (part,) = journal.take_unreadable()
        assert (part.position, part.stop) == (entry.position, entry.end)
        assert journal.read(after.position).entries[0].head == after.head
        journal.close()


# -- files and the index


def test_a_missing_file_in_the_middle_is_refused_and_repaired(pieces: Template) -> None:
    with pieces.copied() as directory:
        starts = segment_starts(directory / "log")
        gone = segment_path(directory / "log", starts[1])
        gone.unlink()
        if pieces.is_closed:
            with pytest.raises(JournalCorrupt, match="missing") as refused:
                open_journal(directory)
            assert refused.value.path == str(gone)
            assert repair(directory).lost
        rest = [one for one in pieces.entries if not starts[1] <= one.position < starts[2]]
        journal = open_journal(directory) if pieces.is_closed else repaired(directory)
        assert spans(entries(journal)) == spans(rest)
        journal.close()


def repaired(directory: Path) -> DiskJournal:
    repair(directory)
    return open_journal(directory)


def test_a_missing_last_file_is_a_lost_tail(pieces: Template) -> None:
    with pieces.copied() as directory:
        last = segment_starts(directory / "log")[-1]
        segment_path(directory / "log", last).unlink()
        kept = entries_before(pieces, last)
        check_opens_with_first(pieces, directory, kept)


def test_missing_first_files_are_a_removal_that_was_interrupted(pieces: Template) -> None:
    with pieces.copied() as directory:
        second = segment_starts(directory / "log")[1]
        segment_path(directory / "log", 0).unlink()
        journal = open_journal(directory)
        assert journal.start == second
        held = [one for one in pieces.entries if one.position >= second]
        assert spans(entries(journal)) == spans(held)
        gone = [one.head for one in pieces.entries if one.position < second and one.head.source == SOURCE_A]
        assert journal.first_held("t/a", SOURCE_A) == gone[-1].stop
        assert journal.find("t/a", SOURCE_A, 1, gone[-1].stop) == []
        journal.close()
        again = open_journal(directory)
        assert again.first_held("t/a", SOURCE_A) == gone[-1].stop
        again.close()


@given(data=st.data())
def test_a_log_of_many_files_cut_in_its_last_opens(pieces: Template, data: st.DataObject) -> None:
    with pieces.copied() as directory:
        last = segment_starts(directory / "log")[-1]
        offset = data.draw(st.integers(0, pieces.end - last - 1))
        with segment_path(directory / "log", last).open("r+b") as file:
            file.truncate(offset)
        check_opens_with_first(pieces, directory, entries_before(pieces, last + offset))


def test_damage_in_an_earlier_file_is_no_tail(pieces: Template) -> None:
    with pieces.copied() as directory:
        start = segment_starts(directory / "log")[-2]
        path = segment_path(directory / "log", start)
        entry = next(one for one in pieces.entries if start <= one.position)
        flip(path, entry.position - start + 70)
        report = repair(directory)
        assert [damage.position for damage in report.damages] == [entry.position]
        journal = open_journal(directory)
        assert spans(entries(journal)) == spans([one for one in pieces.entries if one.head != entry.head])
        journal.close()


def test_a_lost_index_is_built_again(pieces: Template) -> None:
    with pieces.copied() as directory:
        shutil.rmtree(directory / "index")
        journal = open_journal(directory)
        assert journal.report.index_rebuilt
        assert spans(entries(journal)) == spans(pieces.entries)
        assert len(journal.find("t/b", SOURCE_B, 1, 2 * LAST + 1)) == LAST
        assert journal.ledger.rows()[0].accepted == LAST
        journal.close()


def test_an_unreadable_index_is_put_aside_by_repair(pieces: Template) -> None:
    with pieces.copied() as directory:
        (directory / "index" / "data.mdb").write_bytes(b"\xff" * 8_192)
        report = repair(directory)
        assert Path(report.index_aside).exists()
        journal = open_journal(directory)
        assert spans(entries(journal)) == spans(pieces.entries)
        journal.close()


@given(page=st.binary(max_size=64))
def test_a_shared_end_that_makes_no_sense_is_not_believed(template: Template, page: bytes) -> None:
    with template.copied() as directory:
        (directory / "end").write_bytes(page.ljust(4_096, b"\0"))
        journal = open_journal(directory)
        assert spans(entries(journal)) == spans(template.entries)
        assert journal.end == template.end
        journal.close()


def test_a_log_that_is_gone_altogether_is_reported(pieces: Template) -> None:
    with pieces.copied() as directory:
        shutil.rmtree(directory / "log")
        journal = open_journal(directory)
        assert entries(journal) == []
        assert journal.report.missing_bytes >= pieces.end if pieces.is_closed else not journal.report.clean
        assert journal.start == journal.end == pieces.end
        assert {one.stop for one in journal.report.lost if one.source == SOURCE_A} <= {
            LAST // 2 + 1,
            LAST + 1,
        }
        assert keep(journal, batch(1_000)) == pieces.end
        journal.close()
        again = open_journal(directory)
        assert len(entries(again)) == 1
        again.close()
