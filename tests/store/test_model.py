"""Both journals against a plain list, by whatever sequence of steps Hypothesis thinks of."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reknit.batch import Batch
from reknit.errors import Gone
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.store.log.retention import Retention
from reknit.store.memory import SimJournal
from tests.store.journals import SOURCE_A, SOURCE_B, SOURCE_C, Maker, batch, entries, spans, stage
from tests.store.test_damage import SCRATCH

STREAMS = [("t/a", SOURCE_A), ("t/a", SOURCE_B), ("t/b", SOURCE_C)]
ANY_ORDER = STREAMS[2]
"""This one comes as it likes: late, twice, in parts."""
RETENTION = Retention(count_max=30)


class JournalMachine(RuleBasedStateMachine):
    """The model: what was kept, as a list of batches; what is staged; what each subscriber has accepted."""

    kinds = ("sim", "disk", "tiny")

    @initialize(kind=st.sampled_from(kinds))
    def start(self, kind: str) -> None:
        self.place = Path(mkdtemp(dir=SCRATCH))
        self.maker = Maker(kind, self.place / "journal", segment_bytes=600)
        self.journal: Journal = self.maker.open(RETENTION)
        self.next_seq = dict.fromkeys(STREAMS, 1)
        self.kept: list[tuple[int, Batch]] = []
        self.staged: list[tuple[int, Batch]] = []
        self.accepted: list[tuple[tuple[str, bytes], int, int]] = []
        self.staged_accepted: list[tuple[tuple[str, bytes], int, int]] = []
        self.journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
        self.journal.commit()

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
            shutil.rmtree(self.place)

    # -- steps

    @rule(
        batches=st.lists(
            st.tuples(st.sampled_from(STREAMS), st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=5
        )
    )
    def stage(self, batches: list[tuple[tuple[str, bytes], int, int]]) -> None:
        made = []
        for stream, count, skipped in batches:
            first = 1 + skipped if stream == ANY_ORDER else self.next_seq[stream] + skipped % 3
            made.append(batch(first, count, *stream, size=4))
            self.next_seq[stream] = first + count
        position = stage(self.journal, *made)
        for one in made:
            self.staged.append((position, one))
            position += len(one.data)
        assert self.journal.staged_end == position

    @rule(stream=st.sampled_from(STREAMS), start=st.integers(1, 30), count=st.integers(1, 5))
    def accept(self, stream: tuple[str, bytes], start: int, count: int) -> None:
        row = OutcomeRow(*stream, start, start + count, FinalOutcome.ACCEPTED)
        self.journal.stage_record(Outcomes("audit", [row]))
        self.staged_accepted.append((stream, start, start + count))

    @rule(sync=st.booleans())
    def commit(self, sync: bool) -> None:
        assert self.journal.commit(sync or not self.maker.is_disk) == self.journal.staged_end
        self.moved_on()

    @rule()
    def checkpoint(self) -> None:
        self.journal.checkpoint()
        self.moved_on()

    def moved_on(self) -> None:
        self.kept += self.staged
        self.accepted += self.staged_accepted
        self.staged, self.staged_accepted = [], []

    @rule()
    def trim(self) -> None:
        removed = self.journal.trim()
        if self.maker.is_disk and removed:
            self.moved_on()  # it made a checkpoint
        gone = [one for position, one in self.kept if position < self.journal.start]
        self.kept = [(position, one) for position, one in self.kept if position >= self.journal.start]
        for stream in STREAMS:
            mine = SeqSet.from_ranges(
                (one.first, one.stop) for one in gone if (one.topic, one.source) == stream
            )
            told = [(one.start, one.stop) for one in removed if (one.topic, one.source) == stream]
            assert SeqSet.from_ranges(told) == mine

    @rule()
    def close_and_open(self) -> None:
        self.journal.commit()
        self.moved_on()
        if isinstance(self.journal, SimJournal):
            self.journal = self.journal.crash()
        else:
            self.journal.close()
            self.journal = self.maker.open(RETENTION)
            assert self.journal.report.clean

    @rule()
    def crash(self) -> None:
        if isinstance(self.journal, SimJournal):
            self.journal = self.journal.crash()
        else:
            # A killed process leaves its files as they are.
            copy = self.place / "copy"
            shutil.copytree(self.maker.directory, copy)
            self.journal.close()
            shutil.rmtree(self.maker.directory)
            copy.rename(self.maker.directory)
            self.journal = self.maker.open(RETENTION)
            assert self.journal.report.missing_bytes == 0
        self.staged, self.staged_accepted = [], []
        for stream in STREAMS:
            self.next_seq[stream] = self.journal.sources(stream[0]).get(stream[1], 0) + 1

    # -- what holds after every step

    @invariant()
    def reads_what_was_kept(self) -> None:
        if hasattr(self, "journal"):
            found = [(entry.position, entry.head) for entry in entries(self.journal, max_bytes=300)]
            assert found == [(position, one.head) for position, one in self.kept]

    @invariant()
    def finds_what_was_kept(self) -> None:
        if not hasattr(self, "journal"):
            return
        for stream in STREAMS:
            mine = [one for _, one in self.kept if (one.topic, one.source) == stream]
            found = self.journal.find(*stream, 1, 1 << 40)
            assert sorted(spans(found)) == sorted((*stream, one.first, one.stop) for one in mine)
            assert [entry.head.first for entry in found] == sorted(one.first for one in mine)
            middle = mine[len(mine) // 2].first if mine else 1
            some = self.journal.find(*stream, middle, middle + 3)
            assert sorted(spans(some)) == sorted(
                (*stream, one.first, one.stop) for one in mine if one.first < middle + 3 and one.stop > middle
            )
            mine += [one for _, one in self.staged if (one.topic, one.source) == stream]
            assert self.journal.held(*stream) == SeqSet.from_ranges((one.first, one.stop) for one in mine)

    @invariant()
    def the_ledger_has_every_outcome(self) -> None:
        if not hasattr(self, "journal"):
            return
        for stream in STREAMS:
            rows = [row for row in (*self.accepted, *self.staged_accepted) if row[0] == stream]
            expected = SeqSet.from_ranges((start, stop) for _, start, stop in rows)
            ends = self.journal.ledger.accounts["audit"].ends.get(stream, {})
            assert ends.get(FinalOutcome.ACCEPTED, SeqSet()) == expected

    @precondition(lambda self: hasattr(self, "journal") and self.journal.start > 0)
    @invariant()
    def says_what_is_gone(self) -> None:
        with pytest.raises(Gone) as told:
            self.journal.read(self.journal.start - 8)
        assert told.value.first_held == self.journal.start


TestJournals = JournalMachine.TestCase
TestJournals.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
