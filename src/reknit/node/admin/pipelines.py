"""Progress reports of the pipelines that read this node's journal: the last one of each, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from reknit import environment
from reknit.errors import LocalError

PIPELINES_MAX: Final = 32
"""How many are remembered; the one that was silent the longest is evicted."""
TEXT_CHARS_MAX: Final = 1_000
TABLES_MAX: Final = 100
NODES_MAX: Final = 1_000


class TableReport(msgspec.Struct, frozen=True):
    """A table of a lake."""

    name: str
    files: int = 0
    bytes: int = 0


class AuditReport(msgspec.Struct, frozen=True):
    """The result of an audit."""

    at_us: int
    is_balanced: bool
    rows: int = 0
    problems: int = 0
    page: str = ""
    """The file with its page, on the machine where it was made."""


class PipelineReport(msgspec.Struct, frozen=True):
    """A pipeline's progress since it was started, counted in events unless stated otherwise."""

    id: str
    """The id of its lake: a pipeline that is restarted has the same one."""
    lake: str
    stage: str
    """starting, the name of a stage, running, done or stopped."""
    lag_bytes: int = 0
    """Behind the ends of the journals that it reads."""
    batches_s: float = 0.0
    """Rows captured per second, recently: a row is a batch."""
    events_s: float = 0.0
    """Events settled per second, recently."""
    batches: int = 0
    settled: int = 0
    lost: int = 0
    late: int = 0
    held: int = 0
    gaps: int = 0
    dead_letters: int = 0
    away: list[str] = []
    """Nodes that it can't reach."""
    positions: dict[str, int] = {}
    """By the epoch of a node's journal: the position up to which it was captured."""
    tables: list[TableReport] = []
    audit: AuditReport | None = None
    """The last audit of its lake."""


class Pipelines:
    """The pipelines of one node.

    >>> pipelines = Pipelines(now=lambda: 7.0)
    >>> pipelines.note({"id": "1", "lake": "/lake", "stage": "running", "settled": 5})
    {}
    >>> [(row["lake"], row["settled"], row["age_s"]) for row in pipelines.rows()]
    [('/lake', 5, 0.0)]
    """

    def __init__(self, now: Callable[[], float] = environment.monotonic) -> None:
        self._now = now
        self._reports: dict[str, tuple[float, PipelineReport]] = {}

    def note(self, args: dict[str, Any]) -> dict[str, Any]:
        """A pipeline reports its progress. Raises `LocalError` where the arguments are invalid."""
        try:
            report = msgspec.convert(args, PipelineReport)
        except msgspec.ValidationError as error:
            raise LocalError(f"this is not a pipeline's progress: {error}") from None
        texts = (report.id, report.lake, report.stage, *report.away, *report.positions)
        names = [table.name for table in report.tables] + [report.audit.page if report.audit else ""]
        if len(report.tables) > TABLES_MAX or len(report.positions) > NODES_MAX:
            raise LocalError(f"a pipeline's progress has at most {TABLES_MAX} tables and {NODES_MAX} nodes")
        if max(map(len, (*texts, *names))) > TEXT_CHARS_MAX:
            raise LocalError(f"a text of a pipeline's progress is longer than {TEXT_CHARS_MAX} characters")
        self._reports.pop(report.id, None)
        while len(self._reports) >= PIPELINES_MAX:
            del self._reports[next(iter(self._reports))]
        self._reports[report.id] = (self._now(), report)
        return {}

    def rows(self) -> list[dict[str, Any]]:
        """The last report of each, and its age; the newest comes last."""
        now = self._now()
        return [{**msgspec.to_builtins(report), "age_s": now - at} for at, report in self._reports.values()]
