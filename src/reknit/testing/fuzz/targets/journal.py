"""Journals whose files are damaged: opened, verified, read, repaired and written again."""

from __future__ import annotations

import logging
import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final

from reknit.batch import Batch
from reknit.errors import JournalCorrupt, JournalError
from reknit.outcome import FinalOutcome
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened, TopicPaused
from reknit.seqset import SeqSet
from reknit.store.directory.repair import repair
from reknit.store.directory.verification import verify_journal
from reknit.store.disk import DiskJournal
from reknit.store.index.lmdb_environment import Environment
from reknit.store.reader import open_reader
from reknit.testing.fabric.fabric import SHARED_MEMORY
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.targets.target import LocalTarget

LAST: Final = 30
"""How many batches each series has."""
SEGMENT_BYTES: Final = 3_000
SOURCES: Final = (b"a" * 16, b"b" * 16)
TOPICS: Final = ("t/a", "t/b")
FILES: Final = ("index/data.mdb", "end", "journal.json", "index/lock.mdb")
CLOSED, KILLED = "closed", "killed"

Held = dict[tuple[str, bytes], SeqSet]


class JournalTarget(LocalTarget):
    """What is held and what is reported as lost is all there was, whatever is done to the files."""

    name = "journal"

    def __init__(self) -> None:
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-journal-", dir=place)
        self._count = 0
        self._level = logging.root.manager.disable

    def __enter__(self) -> JournalTarget:
        logging.disable(logging.CRITICAL)  # it says what it found, every time
        return self

    def __exit__(self, *args: object) -> None:
        logging.disable(self._level)
        self._folder.cleanup()

    @cached_property
    def templates(self) -> dict[str, Path]:
        """A journal that was closed, and one as a killed process leaves it: half of it is not in the index."""
        made, killed = Path(self._folder.name) / CLOSED, Path(self._folder.name) / KILLED
        journal = _open(made)
        journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
        for seq in range(1, LAST + 1):
            for topic, source in zip(TOPICS, SOURCES, strict=True):
                payloads = [b"%d" % seq, b"x" * (seq % 40)]
                _stage(journal, Batch.build(source, topic, 2 * seq - 1, payloads, time_us=seq))
            journal.stage_record(
                Outcomes("audit", [OutcomeRow("t/a", SOURCES[0], seq, seq + 1, FinalOutcome.ACCEPTED)])
            )
            if seq % 7 == 0:
                journal.stage_record(TopicPaused("t/x", seq))
            journal.commit()
            if seq == LAST // 2:
                journal.checkpoint()
        shutil.copytree(made, killed)
        journal.close()
        return {CLOSED: made, KILLED: killed}

    def make(self, rng: Random) -> tuple[Step, ...]:
        name = rng.choice((CLOSED, KILLED))
        root = self.templates[name]
        logs = [str(path.relative_to(root)) for path in sorted((root / "log").glob("*.log"))]
        steps = [Step(name)]
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            path = rng.choice(logs) if rng.random() < 0.6 else rng.choice(FILES)
            steps.append(_damage(rng, path, (root / path).stat().st_size))
        return tuple(steps)

    def problem(self, steps: tuple[Step, ...]) -> str:
        self._count += 1  # a directory of its own, so that no input sees what another one left open
        work = Path(self._folder.name) / str(self._count)
        try:
            return self._tried(steps, work) or _left_open()
        finally:
            Environment.open_ones.clear()
            shutil.rmtree(work, ignore_errors=True)

    def _tried(self, steps: tuple[Step, ...], work: Path) -> str:
        name = next((step.do for step in steps if step.do in self.templates), KILLED)
        shutil.copytree(self.templates[name], work)
        for step in steps:
            if step.do not in self.templates:
                _apply(work, step)
        _look(work)
        try:
            journal = _open(work)
        except JournalCorrupt:
            repair(work)
            journal = _open(work)
        except JournalError:  # the label can't be read: there is no journal
            return ""
        is_exact = name == CLOSED and all(step.do.startswith((CLOSED, "flip log")) for step in steps)
        return _check(journal, work, is_exact)


def _left_open() -> str:
    return "an index was left open" if Environment.open_ones else ""


def _open(directory: Path) -> DiskJournal:
    return DiskJournal(directory, segment_bytes=SEGMENT_BYTES, preallocate_bytes=4_096, tail_cache_bytes=0)


def _stage(journal: DiskJournal, batch: Batch) -> None:
    journal.stage(bytes(batch.data), [batch.head])


def _look(directory: Path) -> None:
    """Other processes may verify and read a damaged journal before it is opened."""
    try:
        verify_journal(directory)
        with open_reader(directory) as reader:
            position = reader.start
            while position < reader.end:
                run = reader.read(position)
                position = run.next_position
            reader.status()
    except JournalError:
        pass


def _check(journal: DiskJournal, directory: Path, is_exact: bool) -> str:
    """Nothing is made up, and the journal still works. With `is_exact`, everything is held, or told to be lost."""
    held, lost = _read(journal)
    if is_exact and (unknown := _unaccounted(held, lost)):
        return f"events are neither held nor lost\n{unknown}"
    journal.ledger.rows()
    journal.status()
    try:
        for series, found in held.items():
            if found.last > 2 * LAST:
                return f"events are held that were never published\n{series}: {found}"
            if overlap := found.intersection(lost.get(series, SeqSet())):
                return f"events are held and lost\n{series}: {overlap}"
        _stage(journal, Batch.build(b"c" * 16, "t/c", 1, [b"new"], time_us=1))
        end = journal.commit()
    finally:
        journal.close()
    again = _open(directory)
    try:
        if again.end < end or not again.find("t/c", b"c" * 16, 1, 2):
            return f"an event that was stored after the damage is gone\n{again.end} is before {end}"
        after, _ = _read(again)
        return (
            "" if all(after.get(series) == found for series, found in held.items()) else "events vanish later"
        )
    finally:
        again.close()


def _unaccounted(held: Held, lost: Held) -> str:
    for series in zip(TOPICS, SOURCES, strict=True):
        known = held.get(series, SeqSet()).union(lost.get(series, SeqSet()))
        if known != SeqSet.from_ranges([(1, 2 * LAST + 1)]):
            return f"{series} has {known}"
    return ""


def _read(journal: DiskJournal) -> tuple[Held, Held]:
    """What is held and what is lost, by series."""
    held: Held = {}
    lost: Held = {}
    gone = [*journal.report.lost, *journal.report.set_aside]
    position = journal.start
    while position < journal.end:
        run = journal.read(position)
        gone += run.lost
        for entry in run.entries:
            head = entry.head
            held.setdefault((head.topic, head.source), SeqSet()).add(head.first, head.stop)
            Batch.parse(journal.fetch(entry)).events()
        if run.next_position <= position:
            raise AssertionError(f"reading from {position} leads to {run.next_position}")
        position = run.next_position
    position = journal.start
    while position < journal.end:
        _, following = journal.records(position)
        if following <= position:
            raise AssertionError(f"reading records from {position} leads to {following}")
        position = following
    for one in gone:
        lost.setdefault((one.topic, one.source), SeqSet()).add(one.start, one.stop)
    return held, lost


# -- damage


def _damage(rng: Random, path: str, size: int) -> Step:
    at = rng.randrange(max(1, size))
    match rng.randrange(8):
        case 0 | 1 | 2:
            return Step(f"flip {path}", bytes([rng.randrange(1, 256)]), at)
        case 3:
            return Step(f"write {path}", rng.randbytes(rng.choice((4, 100, 4096))), at)
        case 4:
            return Step(f"write {path}", bytes(rng.choice((8, 512, 4096))), at)
        case 5:
            return Step(f"cut {path}", b"", rng.choice((at, 0, size // 4096 // 2 * 4096)))
        case 6:
            return Step(f"append {path}", rng.choice((bytes(64), b"\xff" * 100, rng.randbytes(64))))
        case _:
            return Step(f"remove {path}")


def _apply(root: Path, step: Step) -> None:
    what, _, name = step.do.partition(" ")
    path = root / name
    if not path.exists():
        return
    if what == "remove":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    match what:
        case "flip":
            if step.at < len(data):
                data[step.at] ^= step.data[0] if step.data else 1
        case "write":
            data[step.at : step.at + len(step.data)] = step.data
        case "cut":
            del data[step.at :]
        case "append":
            data += step.data
    path.write_bytes(data)
