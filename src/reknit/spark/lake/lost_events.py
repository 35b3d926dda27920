"""The events that are lost, and those whose loss somebody has accepted, as ranges. Needs pyarrow, not Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from reknit.errors import LocalError
from reknit.seqset import SeqSet
from reknit.spark.lake.commits import Commit
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.storage import open_dataset
from reknit.spark.lake.task_files import TaskFiles, lake_file

__all__ = [
    "EVERYTHING",
    "LossSummary",
    "Losses",
    "LostRange",
    "accept_losses",
    "lost_events",
    "parse_range",
    "summary",
]

EVERYTHING: Final = "all"
RANGES_MAX: Final = 1000
"""A summary names at most this many ranges."""
_RANGE: Final = re.compile(r"(?P<topic>.+):(?P<source>[0-9a-fA-F]{32}):(?P<start>\d+)-(?P<stop>\d+)")

Losses = dict[tuple[str, bytes], SeqSet]
"""By topic and source."""


class LostRange(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series.

    >>> print(LostRange("plant/a", "61" * 16, 51, 61))
    plant/a:61616161616161616161616161616161:51-61
    """

    topic: str
    source: str
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.source}:{self.start}-{self.stop}"


class LossSummary(msgspec.Struct, frozen=True):
    """How many events are lost, and which of those losses nobody has accepted."""

    events: int = 0
    accepted: int = 0
    ranges: list[LostRange] = []
    """What is lost and not accepted; of very many ranges the first."""

    @property
    def unaccepted(self) -> int:
        return self.events - self.accepted


def parse_range(text: str) -> LostRange:
    """A range as an audit prints it. Raises `LocalError`.

    >>> parse_range("plant/a:61616161616161616161616161616161:51-61").stop
    61
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or int(found["start"]) >= int(found["stop"]):
        raise LocalError(
            f"{text!r} is not a valid range; write it as the audit prints it, TOPIC:SOURCE:START-STOP, where STOP is "
            "the seq after the last, or write all"
        )
    return LostRange(found["topic"], found["source"].lower(), int(found["start"]), int(found["stop"]))


def lost_events(lake: Lake, of_subscribers: Iterable[tuple[str, bytes, int, int]] = ()) -> Losses:
    """What is in no journal and came in no other way, and what the ledger calls lost for a subscriber."""
    found = _read(lake, "losses", ds.field("reason") == "missing")
    for key, late in _read(lake, "late").items():
        if key in found:
            found[key] = found[key].difference(late)
    for topic, source, start, stop in of_subscribers:
        found.setdefault((topic, source), SeqSet()).add(start, stop)
    return found


def summary(lake: Lake, losses: Losses) -> LossSummary:
    """The losses, without those that were accepted."""
    accepted = _read(lake, "accepted_losses")
    left = {key: seqs.difference(accepted.get(key, SeqSet())) for key, seqs in sorted(losses.items())}
    ranges = [LostRange(key[0], key[1].hex(), *one) for key, seqs in left.items() for one in seqs.ranges()]
    total = sum(seqs.count for seqs in losses.values())
    return LossSummary(total, total - sum(seqs.count for seqs in left.values()), ranges[:RANGES_MAX])


def accept_losses(lake: Lake, wanted: Iterable[str], losses: Losses) -> None:
    """Record that these ranges may stay lost; `all` stands for every loss that is known now. Raises `LocalError`."""
    rows: list[LostRange] = []
    for text in wanted:
        if text.strip() == EVERYTHING:
            rows += _ranges(losses)
        else:
            rows.append(parse_range(text))
    if rows:
        _record(lake, rows)


def _ranges(losses: Mapping[tuple[str, bytes], SeqSet]) -> list[LostRange]:
    return [
        LostRange(topic, source.hex(), start, stop)
        for (topic, source), seqs in sorted(losses.items())
        for start, stop in seqs.ranges()
    ]


def _record(lake: Lake, rows: list[LostRange]) -> None:
    """Commit rows of table `accepted_losses`."""
    now_us = time.time_ns() // 1000
    table = pa.table(
        {
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "source": pa.array([bytes.fromhex(row.source) for row in rows], pa.binary()),
            "start": pa.array([row.start for row in rows], pa.int64()),
            "stop": pa.array([row.stop for row in rows], pa.int64()),
            "time": pa.array([now_us] * len(rows), pa.timestamp("us", "UTC")),
        }
    )
    with lake.locked("_accept"):
        log = lake.log("accept")
        last = log.last()
        id = 0 if last is None else last.id + 1
        plan = TaskFiles(lake.storage.root, f"accept-{id}-{uuid4().hex[:8]}", {"": "accepted_losses"})
        files = [lake_file(row) for one in plan.write(table.to_batches()) for row in one.to_pylist()]
        log.add(Commit("accept", id, now_us, files))


def _read(lake: Lake, table: str, wanted: ds.Expression | None = None) -> Losses:
    """The ranges of a table."""
    paths = lake.paths(lake.files(table))
    found: Losses = {}
    if not paths:
        return found
    columns = ["topic", "source", "start", "stop"]
    rows = open_dataset(paths).to_table(columns, filter=wanted)
    for topic, source, start, stop in zip(*(rows.column(name).to_pylist() for name in columns), strict=True):
        found.setdefault((topic, source), SeqSet()).add(start, stop)
    return found
