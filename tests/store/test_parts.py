"""The parts of a journal, each alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reknit.errors import Closed, JournalFull
from reknit.records import SubscriberOpened
from reknit.store.engine.commit import LogCommitter
from reknit.store.engine.journal_clock import make_clock
from reknit.store.engine.log_state import LogState
from reknit.store.engine.staging import SegmentLimits, StagingArea
from reknit.store.log.retention import Retention, Segment
from reknit.store.log.tail import Chunk
from reknit.store.log.walk import content_bytes
from tests.store.journals import SOURCE_A, Clock, batch


class FailingWriter:
    """Writes to a list; fails while `error` is set."""

    problem = ""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.written: list[Chunk] = []
        self.syncs = 0
        self.ends: list[tuple[int, int]] = []

    def write(self, segment: Segment, chunks: Sequence[Chunk], sync: bool) -> None:
        if self.error is not None:
            raise self.error
        self.written += chunks

    def sync(self) -> None:
        self.syncs += 1

    def share_end(self, end: int, synced_end: int) -> None:
        self.ends.append((end, synced_end))


def make(segment_bytes: int = 1 << 20, staged_bytes_max: int = 1 << 20) -> tuple[LogState, StagingArea]:
    state = LogState("test", None)
    limits = SegmentLimits(segment_bytes, Retention())
    own = make_clock(Clock(), None)
    area = StagingArea(state, limits, staged_bytes_max=staged_bytes_max, now_us=Clock(), clock=own, mark_us=0)
    return state, area


def stage(area: StagingArea, first: int) -> int:
    one = batch(first)
    return area.stage(bytes(one.data), [one.head])


def test_staging_assigns_positions_and_applies_records_without_any_writer() -> None:
    state, area = make()
    size = len(batch(1).data)
    assert [stage(area, 1), stage(area, 2)] == [0, size]
    area.stage_record(SubscriberOpened("audit", "t/**", [], 0, 0))
    assert state.ledger.published["t/a", SOURCE_A].ranges() == [(1, 3)]
    assert "audit" in state.ledger.accounts
    assert (state.end, state.staged_end > 2 * size) == (0, True)


def test_a_full_segment_is_followed_by_another() -> None:
    state, area = make(segment_bytes=1)
    stage(area, 1)
    at = stage(area, 2)
    assert [one.start for one in state.segments] == [0, at]


def test_batches_are_refused_at_the_limit_while_records_still_have_room() -> None:
    _, area = make(staged_bytes_max=10 * len(batch(1).data))
    for first in range(1, 11):
        stage(area, first)
    with pytest.raises(JournalFull, match="wait to be written"):
        stage(area, 11)
    area.stage_record(SubscriberOpened("audit", "t/**", [], 0, 0))
    with pytest.raises(JournalFull, match="wait to be written"):
        area.stage_record(SubscriberOpened("x" * 200, "t/**", [], 0, 0))


def test_a_failed_commit_keeps_everything_staged_in_order() -> None:
    state, area = make()
    writer = FailingWriter()
    committer = LogCommitter(state, area, writer)
    stage(area, 1)
    writer.error = JournalFull("no space left on device", "test")
    with pytest.raises(JournalFull):
        committer.commit()
    assert state.end == 0
    stage(area, 2)
    writer.error = None
    assert committer.commit() == state.staged_end
    seqs = [entry.head.first for chunk in writer.written for entry in chunk.entries]
    assert seqs == [1, 2]


def test_a_commit_without_sync_is_synced_by_the_next_one_with() -> None:
    state, area = make()
    writer = FailingWriter()
    committer = LogCommitter(state, area, writer)
    stage(area, 1)
    end = committer.commit(sync=False)
    assert (state.end, state.synced_end, writer.syncs) == (end, 0, 0)
    committer.commit(sync=True)
    assert (state.synced_end, writer.syncs) == (end, 1)
    assert writer.ends == [(end, 0), (end, end)]


def test_nothing_is_staged_after_close() -> None:
    state, area = make()
    state.close()
    with pytest.raises(Closed):
        stage(area, 1)


@pytest.mark.parametrize("zeros", [0, 1, (1 << 16) - 3, 1 << 16, (3 << 16) + 5])
@pytest.mark.parametrize("content", [b"", b"a\0b"])
def test_preallocated_zeros_are_not_content(content: bytes, zeros: int) -> None:
    assert content_bytes(content + bytes(zeros)) == len(content)
