"""Dead letters as the events that a redrive publishes: new ids, and everything else as it was."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from reknit import environment
from reknit.dead_letter import DeadLetterContent
from reknit.envelope.columns import ID
from reknit.envelope.ids import make_id
from reknit.spark.sink.publisher import BatchFields, SinkPublisher

__all__ = ["RedrivenEvent", "grouped", "put"]


class RedrivenEvent(NamedTuple):
    """An event to publish again."""

    topic: str
    payload: bytes
    ttl_ms: int
    priority: int
    type: int
    flags: int
    columns: dict[str, Any]
    """The fields in which events of a batch differ, with the headers that mark a redriven event."""

    @classmethod
    def of_row(cls, row: Any) -> RedrivenEvent:
        """From a row of table `dead_letters` that is whole."""
        columns: dict[str, Any] = msgspec.msgpack.decode(bytes(row["fields"]))
        letter = DeadLetterContent(
            row["topic"],
            bytes(row["source"]),
            row["seq"],
            0,
            b"",
            row["subscriber"] or "",
            row["code"] or 0,
            row["reason"] or "",
            "",
            0,
            "",
            0,
            columns=columns,
            redriven=row["redriven"] or 0,
            original=row["original"] or "",
        )
        kept = {name: value for name, value in columns.items() if name not in ("time", "ttl")}
        if ID in kept:
            kept[ID] = _new_id()
        own = (row["ttl_ms"], row["priority"], row["type"], row["flags"])
        return cls(letter.topic, bytes(row["payload"]), *own, {**kept, "headers": letter.redriven_headers()})

    @property
    def kind(self) -> tuple[Any, ...]:
        """Events of one kind can share a batch."""
        return (self.topic, self.priority, self.type, self.flags, *sorted(self.columns))


def _new_id() -> bytes:
    return make_id(time.time_ns() // 1_000_000, int.from_bytes(environment.token_bytes(10))).bytes


def grouped(events: Iterable[RedrivenEvent], size: int) -> Iterator[list[RedrivenEvent]]:
    """Consecutive events of one kind, at most `size` at a time."""
    group: list[RedrivenEvent] = []
    for event in events:
        if group and (len(group) >= size or event.kind != group[0].kind):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def put(publisher: SinkPublisher, group: list[RedrivenEvent], ttl_ms: int | None) -> None:
    """Publish events of one kind; `ttl_ms` replaces their own time to live."""
    one = group[0]
    columns = {name: [event.columns[name] for event in group] for name in one.columns}
    ttls = [event.ttl_ms if ttl_ms is None else ttl_ms for event in group]
    if len(set(ttls)) > 1:
        columns["ttl"] = ttls
    shared = BatchFields(max(ttls), one.priority, one.type, one.flags)
    publisher.put(one.topic, [event.payload for event in group], columns, shared)
