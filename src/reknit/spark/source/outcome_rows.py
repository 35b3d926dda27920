"""Records as rows: how events ended for subscribers, and which subscribers were opened and closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from reknit.outcome import FinalOutcome
from reknit.records import (
    Outcomes,
    Record,
    Skipped,
    SubscriberClosed,
    SubscriberOpened,
    decode,
)
from reknit.spark.source.arrow import ROWS
from reknit.spark.source.filters import BatchFilter

__all__ = ["outcome_rows", "outcome_tables"]

Row = dict[str, Any]


def outcome_tables(
    node: str, frames: Iterable[tuple[int, Any]], batch_filter: BatchFilter, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Record batches with the rows of these records, in order."""
    rows: list[Row] = []
    for position, frame in frames:
        for number, row in enumerate(outcome_rows(decode(frame))):
            if row.get("topic") is None or batch_filter.matches_topic(row["topic"]):
                rows.append({"node": node, "position": position, "row": number, **row})
        if len(rows) >= ROWS:
            yield table(rows, schema)
            rows = []
    if rows:
        yield table(rows, schema)


def table(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a record batch; a missing column is null."""
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def outcome_rows(record: Record) -> list[Row]:
    """A record's rows.

    >>> [(row["kind"], row["topic"], row["since"]) for row in outcome_rows(
    ...     SubscriberOpened.at("audit", "plant/**", {("plant/a", bytes(16)): 7}, 0, 0))]
    [('opened', None, None), ('opened', 'plant/a', 7)]
    """
    match record:
        case Outcomes():
            return _ended(record)
        case SubscriberOpened():
            return _opened(record)
        case SubscriberClosed(name=name, time_us=time_us):
            return [{"kind": "closed", "subscriber": name, "time": _moment(time_us)}]
        case Skipped(topic=topic, source=source, start=start, stop=stop, text=text, time_us=time_us):
            where = {"topic": topic, "source": source, "start": start, "stop": stop}
            return [{"kind": "skipped", **where, "text": text, "time": _moment(time_us)}]
        case _:  # pauses, attempts without an outcome, and notes about dead letters
            return []


def _ended(record: Outcomes) -> list[Row]:
    common = {"kind": "outcomes", "subscriber": record.name, "floor": record.floor}
    rows = [
        {
            **common,
            "topic": row.topic,
            "source": row.source,
            "start": row.start,
            "stop": row.stop,
            "end": FinalOutcome(row.end).name,
            "code": row.code,
            "reason": row.reason,
            "text": row.text,
            "attempts": row.attempts,
            "time": _moment(row.time_us),
        }
        for row in record.rows
    ]
    # A record without outcomes still moves the floor.
    return rows or [common]


def _opened(record: SubscriberOpened) -> list[Row]:
    common = {
        "kind": "opened",
        "subscriber": record.name,
        "pattern": record.pattern,
        "floor": record.position,
        "time": _moment(record.time_us),
    }
    whole: Row = {**common, "topic": None, "since": None}
    return [whole, *({**common, "topic": s.topic, "source": s.source, "since": s.seq} for s in record.since)]


def _moment(time_us: int) -> datetime | None:
    return datetime.fromtimestamp(time_us / 1e6, UTC) if time_us else None
