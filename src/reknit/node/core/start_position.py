"""Where a subscription begins, resolved against the journal, in steps: it may have very many series and events.

Events may be stored between two steps. Those are behind the position where the subscription begins, and they are
wanted, whether their series were looked at before or are looked at later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from reknit.errors import Gone, InvalidCheckpoint
from reknit.ledger import Series
from reknit.node.core.journal_walks import newest, series_of
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.store.journal import READ_BYTES_MAX, Journal
from reknit.topic import Pattern
from reknit.wire.messages import Start, Subscribe

SERIES: Final = 1
"""The cost of looking at one series, the unit of all costs."""
FIND: Final = 100
"""The cost of looking for events in the journal."""
READ: Final = 1_000
"""The cost of reading a part of the journal."""
WAIT: Final = 0
"""The next step makes sense only when more of the journal is durable."""
Steps = Generator[int, None, OpenSubscription]
"""Each step gives its cost."""


def resolve(request: Subscribe, journal: Journal, epoch: str, now_us: Callable[[], int]) -> Steps:
    """A subscription with its pattern parsed and its start as a position. Raises `LocalError`."""
    pattern = Pattern(request.pattern)
    start = request.start
    is_new = bool(request.account) and request.account not in journal.ledger.accounts
    if start.position is not None and start.epoch == epoch:
        since = yield from _since_position(journal, pattern, start.position) if is_new else _nothing()
        return OpenSubscription(request, pattern, start.position, since, seen=_after(start))
    if start.history and (start.count or start.age_s):
        position, after = yield from _recent(journal, pattern, start, now_us())
        since = yield from _since_held(journal, pattern, after) if is_new else _nothing()
        return OpenSubscription(request, pattern, max(position, journal.start), since, after)
    if start.history or start.checkpoint is not None:
        after = _after(start)
        since = yield from _since_held(journal, pattern, after) if is_new else _nothing()
        return OpenSubscription(request, pattern, journal.start, since, after)
    if not is_new:
        return OpenSubscription(request, pattern, -1)
    position = journal.end
    since, is_late = yield from _since_now(journal, pattern)
    return OpenSubscription(request, pattern, position if is_late else -1, since)


def _after(start: Start) -> dict[bytes, int]:
    try:
        after = {bytes.fromhex(source): seq for source, seq in (start.checkpoint or {}).items()}
    except ValueError:
        raise InvalidCheckpoint(str(start.checkpoint), "names sources as 32 hexadecimal digits") from None
    return after


def _nothing() -> Generator[int, None, dict[Series, int]]:
    yield from ()
    return {}


def _recent(
    journal: Journal, pattern: Pattern, start: Start, now_us: int
) -> Generator[int, None, tuple[int, dict[bytes, int]]]:
    """Where the wanted part of history begins, and after which seqs: the last `count` events, or the recent ones."""
    oldest_us = now_us - int(start.age_s * 1e6) if start.age_s else 0
    position, after = journal.end, dict[bytes, int]()
    for series, seqs in series_of(journal, pattern):
        stop = seqs.last + 1
        first = max(journal.first_held(*series), stop - start.count if start.count else 1)
        after[series[1]] = first - 1
        yield SERIES
        for entry in newest(journal, series, first, stop):
            if entry is None:
                yield FIND
            elif entry.head.time_us < oldest_us:
                after[series[1]] = max(first, entry.head.stop) - 1
                break
            else:
                position = min(position, entry.position)
    return position, after


def _since_now(journal: Journal, pattern: Pattern) -> Generator[int, None, tuple[dict[Series, int], bool]]:
    """A new durable subscriber is owed the events after those published so far. Also gives whether that took a while.

    Then some of them may be stored before others were looked at.
    """
    staged, since = journal.staged_end, dict[Series, int]()
    for series, seqs in series_of(journal, pattern):
        since[series] = seqs.last + 1
        yield SERIES
    return since, journal.staged_end != staged


def _since_held(
    journal: Journal, pattern: Pattern, after: dict[bytes, int]
) -> Generator[int, None, dict[Series, int]]:
    """A new durable subscriber with history is owed the held events after its checkpoint."""
    since = dict[Series, int]()
    for series, _ in series_of(journal, pattern):
        since[series] = max(journal.first_held(*series), after.get(series[1], 0) + 1)
        yield SERIES
    return since


def _since_position(
    journal: Journal, pattern: Pattern, position: int
) -> Generator[int, None, dict[Series, int]]:
    """A subscriber with a position is owed all events except those that the journal holds before it."""
    since, _ = yield from _since_now(journal, pattern)
    stop = journal.staged_end
    while position < stop:
        position = max(position, journal.start)
        if position >= journal.end:
            yield WAIT  # events that are counted above are on their way to the disk
            continue
        try:
            run = journal.read(position, max_bytes=READ_BYTES_MAX)
        except Gone:  # retention removed it meanwhile
            continue
        for entry in run.entries:
            series = (entry.head.topic, entry.head.source)
            if series in since:
                since[series] = min(since[series], entry.head.first)
        position = run.next_position
        yield READ
    return since
