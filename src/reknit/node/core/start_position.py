"""Where a subscription begins, resolved against the journal."""

from __future__ import annotations

from reknit.errors import InvalidCheckpoint
from reknit.ledger import Series
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.messages import Start, Subscribe


def resolve(request: Subscribe, journal: Journal, epoch: str, now_us: int) -> OpenSubscription:
    """A subscription with its pattern parsed and its start as a position. Raises `LocalError`."""
    pattern = Pattern(request.pattern)
    start = request.start
    if start.position is not None and start.epoch == epoch:
        is_new = bool(request.account) and request.account not in journal.ledger.accounts
        since = _since_position(journal, pattern, max(start.position, journal.start)) if is_new else {}
        return OpenSubscription(request, pattern, start.position, since, seen=_after(start))
    if start.history and (start.count or start.age_s):
        position, after = _recent(journal, pattern, start, now_us)
        return OpenSubscription(request, pattern, position, _since_held(journal, pattern, after), after)
    if start.history or start.checkpoint is not None:
        after = _after(start)
        return OpenSubscription(request, pattern, journal.start, _since_held(journal, pattern, after), after)
    return OpenSubscription(request, pattern, -1, _since_now(journal, pattern))


def _after(start: Start) -> dict[bytes, int]:
    try:
        after = {bytes.fromhex(source): seq for source, seq in (start.checkpoint or {}).items()}
    except ValueError:
        raise InvalidCheckpoint(str(start.checkpoint), "names sources as 32 hexadecimal digits") from None
    return after


def _recent(journal: Journal, pattern: Pattern, start: Start, now_us: int) -> tuple[int, dict[bytes, int]]:
    """Where the wanted part of history begins, and after which seqs: the last `count` events, or the recent ones."""
    oldest_us = now_us - int(start.age_s * 1e6) if start.age_s else 0
    position, after = journal.end, {}
    for (topic, source), seqs in journal.ledger.matching(pattern):
        first = max(journal.first_held(topic, source), seqs.last + 1 - start.count if start.count else 1)
        entries = journal.find(topic, source, first, seqs.last + 1) if first <= seqs.last else []
        old = [entry.head.stop for entry in entries if entry.head.time_us < oldest_us]
        after[source] = max([first, *old]) - 1
        position = min(
            [position, *(entry.position for entry in entries if entry.head.stop > after[source] + 1)]
        )
    return max(position, journal.start), after


def _since_now(journal: Journal, pattern: Pattern) -> dict[Series, int]:
    """A new durable subscriber is owed the events after those published so far."""
    return {series: seqs.last + 1 for series, seqs in journal.ledger.matching(pattern)}


def _since_held(journal: Journal, pattern: Pattern, after: dict[bytes, int]) -> dict[Series, int]:
    """A new durable subscriber with history is owed the held events after its checkpoint."""
    return {
        (topic, source): max(journal.first_held(topic, source), after.get(source, 0) + 1)
        for (topic, source), _ in journal.ledger.matching(pattern)
    }


def _since_position(journal: Journal, pattern: Pattern, position: int) -> dict[Series, int]:
    """A subscriber with a position is owed all events except those that the journal holds before it."""
    since = _since_now(journal, pattern)
    while position < journal.end:
        run = journal.read(position)
        for entry in run.entries:
            series = (entry.head.topic, entry.head.source)
            if series in since:
                since[series] = min(since[series], entry.head.first)
        position = run.next_position
    return since
