"""What a damaged journal no longer has, though the ledger of its node counts it: the pipeline can't capture it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reknit.ledger import Series
from reknit.records import Outcomes
from reknit.seqset import SeqSet
from reknit.store.reader import JournalReader, open_reader

NONE: Final = SeqSet()


class Damage:
    """Of one journal, beside a node that may run."""

    def __init__(self, directory: Path) -> None:
        with open_reader(directory) as journal:
            self.events = _unreadable_events(journal)
            """By series: what its index has, and its files don't."""
            self._ended = _readable_outcomes(journal)
            """By subscriber and series: what its files know to have ended."""

    def lost_events(self, problem: dict[str, Any]) -> int:
        """How many of the events that a problem of the audit is about can't be read any more."""
        return _count_within(self.events.get(_series(problem), NONE), problem)

    def lost_outcomes(self, problem: dict[str, Any]) -> int:
        """How many of them have ended, and the record of that can't be read any more."""
        ended = self._ended.get((problem["subscriber"], _series(problem)), NONE)
        size: int = problem["stop"] - problem["start"]
        return size - _count_within(ended, problem)


def _series(problem: dict[str, Any]) -> Series:
    return problem["topic"], bytes.fromhex(problem["source"])


def _count_within(seqs: SeqSet, problem: dict[str, Any]) -> int:
    return sum(stop - start for start, stop in seqs.overlap(problem["start"], problem["stop"]))


def _unreadable_events(journal: JournalReader) -> dict[Series, SeqSet]:
    readable: dict[Series, SeqSet] = {}
    position, end = journal.start, journal.end
    while position < end:
        run = journal.read(position, end)
        for entry in run.entries:
            series = (entry.head.topic, entry.head.source)
            readable.setdefault(series, SeqSet()).add(entry.head.first, entry.head.stop)
        position = run.next_position
    all_series = [(topic, source) for topic in journal.topics() for source in journal.sources(topic)]
    held = {series: journal.held(*series).union(journal.lost(*series)) for series in all_series}
    found = {series: seqs.difference(readable.get(series, NONE)) for series, seqs in held.items()}
    return {series: seqs for series, seqs in found.items() if seqs}


def _readable_outcomes(journal: JournalReader) -> dict[tuple[str, Series], SeqSet]:
    found: dict[tuple[str, Series], SeqSet] = {}
    for record in _outcomes(journal):
        for row in record.rows:
            found.setdefault((record.name, (row.topic, row.source)), SeqSet()).add(row.start, row.stop)
    return found


def _outcomes(journal: JournalReader) -> Iterator[Outcomes]:
    position, end = journal.start, journal.end
    while position < end:
        records, position = journal.records(position, end)
        yield from (record for _, record in records if isinstance(record, Outcomes))
