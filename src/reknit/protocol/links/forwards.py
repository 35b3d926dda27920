"""Anycast events between neighbours: the header before them on the way out, and the offers that they are on arrival."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.batch import Batch
from reknit.event import FLAG_STREAM
from reknit.protocol.anycast.inputs import ForwardBatch, OfferEvents
from reknit.protocol.streams.inputs import OfferStream
from reknit.wire.links import Forward


def header_of(message: ForwardBatch, now: float) -> Forward:
    """The message that announces events to a neighbour."""
    wanted = message.wanted
    ttl_ms = max(1, int((wanted.deadline - now) * 1000)) if wanted.deadline is not None else 0
    return Forward(
        message.batch.head.length,
        wanted.origin,
        wanted.mode,
        wanted.resend,
        wanted.attempts,
        ttl_ms,
        wanted.visited,
    )


def offers_of(header: Forward, batches: list[Batch], now: float) -> Iterator[OfferEvents | OfferStream]:
    """What a neighbour forwards: events for anycast, and streams, whose payload follows in chunks."""
    deadline = now + header.ttl_ms / 1000 if header.ttl_ms else None
    for batch in batches:
        offered = OfferEvents(
            batch,
            header.mode,
            header.resend,
            header.origin,
            tuple(header.visited),
            deadline=deadline,
            attempts=header.attempts,
        )
        yield OfferStream(offered) if batch.head.flags & FLAG_STREAM else offered
