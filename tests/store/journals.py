"""Batches and journals for the store's tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reknit.batch import Batch
from reknit.entries import Entry
from reknit.store.disk import DiskJournal
from reknit.store.journal import Journal, Readable
from reknit.store.log.retention import Retention
from reknit.store.memory import MemoryJournal, SimJournal

SOURCE_A, SOURCE_B, SOURCE_C = b"a" * 16, b"b" * 16, b"c" * 16
KINDS = ("memory", "sim", "disk", "tiny")


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    us: int = 1_000_000_000

    def __call__(self) -> int:
        return self.us


@dataclass
class Maker:
    """Opens journals of one kind, with small limits, so that all that is large in life is small here."""

    kind: str
    directory: Path
    clock: Clock = field(default_factory=Clock)
    segment_bytes: int = 2_000
    staged_bytes_max: int = 1 << 20
    mark_us: int = 0

    @property
    def is_disk(self) -> bool:
        return self.kind in ("disk", "tiny")

    def open(self, retention: Retention | None = None) -> Journal:
        if self.kind == "memory":
            return MemoryJournal(
                retention,
                staged_bytes_max=self.staged_bytes_max,
                segment_bytes=self.segment_bytes,
                now_us=self.clock,
                mark_us=self.mark_us,
            )
        if self.kind == "sim":
            return SimJournal(
                retention,
                staged_bytes_max=self.staged_bytes_max,
                segment_bytes=self.segment_bytes,
                now_us=self.clock,
                mark_us=self.mark_us,
            )
        return DiskJournal(
            self.directory,
            retention,
            staged_bytes_max=self.staged_bytes_max,
            segment_bytes=self.segment_bytes,
            tail_cache_bytes=0 if self.kind == "tiny" else 1 << 20,
            preallocate_bytes=64 << 10,
            now_us=self.clock,
            mark_us=self.mark_us,
        )

    def reopen(self, journal: Journal) -> Journal:
        """Stop and start again."""
        if isinstance(journal, SimJournal):
            journal.commit()
            return journal.crash()
        journal.close()
        return self.open()


def batch(first: int, count: int = 1, topic: str = "t/a", source: bytes = SOURCE_A, size: int = 10) -> Batch:
    payloads = [b"%0*d" % (size, seq) for seq in range(first, first + count)]
    return Batch.build(source, topic, first, payloads, time_us=first)


def stage(journal: Journal, *batches: Batch) -> int:
    """Stage batches as one run."""
    return journal.stage(b"".join([bytes(one.data) for one in batches]), [one.head for one in batches])


def keep(journal: Journal, *batches: Batch) -> int:
    position = stage(journal, *batches)
    journal.commit()
    return position


def entries(journal: Readable, position: int | None = None, max_bytes: int = 1 << 20) -> list[Entry]:
    """All entries from a position on, every run checked on the way."""
    found: list[Entry] = []
    at = journal.start if position is None else position
    while at < journal.end:
        run = journal.read(at, max_bytes=max_bytes)
        assert run.next_position > at
        if run.entries:
            assert run.entries[0].position == run.position
            assert run.entries[-1].end - run.position == len(run.data)
            for index, entry in enumerate(run.entries):
                assert Batch.parse(run.cut(index, index + 1)).head == entry.head
        found += run.entries
        at = run.next_position
    return found


def spans(found: Iterable[Entry]) -> list[tuple[str, bytes, int, int]]:
    return [(one.head.topic, one.head.source, one.head.first, one.head.stop) for one in found]
