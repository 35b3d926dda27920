"""Replies to a node that recovers events from the caches of a session."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.recovery import cache as machines
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import encode
from reknit.wire.recovery import Recover, Recovered, Survey, Surveyed


def reply_from_caches(caches: Sequence[machines.EventHolder], request: Recover | Survey) -> list[Buffer]:
    """The frames of the reply, from all caches of the session together."""
    if isinstance(request, Survey):
        pattern = Pattern(request.pattern)
        spans = [span for cache in caches for span in cache.survey(pattern, request.age_s)]
        return [encode(Surveyed(request.id, spans))]
    found: list[Batch] = []
    covered: list[Range] = []
    for cache in caches:
        batches, reached = machines.answer(cache, request)
        covered = covered or reached
        found += batches
        have = SeqSet.from_ranges((batch.first, batch.stop) for batch in found)
        rest = [gap for bounds in covered for gap in have.missing(*bounds)]
        request = Recover(request.id, request.topic, request.source, rest, request.bytes_max, request.deep)
    found.sort(key=lambda batch: batch.first)
    head = Recovered(request.id, machines.total(found), covered or request.ranges)
    return [encode(head), *(batch.data for batch in found)]
