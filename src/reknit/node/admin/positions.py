"""Answers about positions in a node's journal, for readers that plan how to read it in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reknit.store.journal import Readable

INDEX_BYTES_MAX: Final = 1 << 20
STREAMS_MAX: Final = 100_000
NO_LIMIT: Final = 1 << 62


def index(journal: Readable, args: Mapping[str, Any]) -> dict[str, Any]:
    """Where `[position, stop)` can be split, and how many events it holds, a MiB of it at a time.

    A mark is the first batch at or after `origin + k * step`. `next` is where to continue. With `events_max` that is
    the first batch with which there would be more, but never the one at `origin`; then `full` is true.
    """
    position, origin, step = int(args["position"]), int(args["origin"]), max(1, int(args["step"]))
    stop, room = min(int(args["stop"]), journal.end), int(args.get("events_max", NO_LIMIT))
    due = origin + -(-(position - origin) // step) * step
    marks: list[int] = []
    events, limit = 0, position + INDEX_BYTES_MAX
    while position < min(stop, limit):
        run = journal.read(position, stop)
        for entry in run.entries:
            if events + entry.head.count > room and entry.position > origin:
                return {"marks": marks, "events": events, "next": entry.position, "full": True}
            events += entry.head.count
            if entry.position >= due:
                marks.append(entry.position)
                due = origin + ((entry.position - origin) // step + 1) * step
        position = run.next_position
    return {"marks": marks, "events": events, "next": position, "full": events >= room}


def streams(journal: Readable) -> dict[str, Any]:
    """[topic, source, first held seq, last seq] of every series of which retention removed events."""
    rows = [
        (topic, source, journal.first_held(topic, source), last)
        for topic in journal.topics()
        for source, last in journal.sources(topic).items()
    ]
    removed = [row for row in rows if row[2] > 1]
    return {"streams": removed[:STREAMS_MAX], "is_whole": len(removed) <= STREAMS_MAX}
