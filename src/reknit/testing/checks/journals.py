"""Checks of a journal at rest: what was acknowledged is there, once, and retention kept what it has to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.testing.checks.deliveries import name_of, overlap
from reknit.testing.checks.promise import promise


def batches_of(journal: Journal) -> Iterator[Batch]:
    """Every batch that a journal holds, in the order of their positions."""
    position = journal.start
    while position < journal.end:
        run = journal.read(position)
        position = run.next_position
        for index in range(len(run.entries)):
            yield Batch.parse(run.cut(index, index + 1))


@promise("An event is stored once.")
def events_are_stored_once(batches: list[Batch]) -> Iterator[str]:
    stored: dict[Series, SeqSet] = {}
    for batch in batches:
        series = (batch.topic, batch.source)
        for bounds in overlap(stored, batch):
            yield f"{name_of(series)} {bounds} is stored twice"
        stored.setdefault(series, SeqSet()).add(batch.first, batch.stop)


@promise("An event is stored as its publisher sent it, and every acknowledged event is stored.")
def acknowledged_events_are_stored(
    journal: Journal,
    stored: Mapping[Series, Mapping[int, bytes]],
    acknowledged: Mapping[Series, Mapping[int, bytes]],
) -> Iterator[str]:
    """Both have payloads by seq. What retention removed can't be compared."""
    for series, by_seq in acknowledged.items():
        held, first_held = stored.get(series, {}), journal.first_held(*series)
        missing = [seq for seq in by_seq if seq >= first_held and seq not in held]
        if missing:
            yield f"{name_of(series)} {missing} was acknowledged and is not stored"
        for seq in by_seq.keys() & held.keys():
            if by_seq[seq] != held[seq]:
                yield f"another {name_of(series)} {seq} is stored than was acknowledged"


@promise("Retention keeps at least as many of the newest events as configured.")
def newest_events_are_kept(held: int, published: int, count_max: int) -> Iterator[str]:
    """How many events are held, how many there ever were, and how many are to be kept."""
    if held < min(count_max, published):
        yield f"{held} of {published} events are held, and retention.count_max is {count_max}"
