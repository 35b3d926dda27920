"""Progress of the pipeline: its figures, and a live table of them in the terminal."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

__all__ = ["Figures", "PipelineProgress", "ProgressScreen", "captured", "lag"]

RATE_S: Final = 10.0
"""Rates are averages over about this time."""


class Figures(msgspec.Struct):
    """The pipeline's progress since it started, counted in events unless stated otherwise."""

    batches: int = 0
    outcomes: int = 0
    settled: int = 0
    held: int = 0
    """Now: after a gap that may still be filled."""
    gaps: int = 0
    """Now: missing, still in grace."""
    lost: int = 0
    late: int = 0
    recovered: int = 0
    duplicates: int = 0
    """Events that were skipped, because they repeat the fingerprint of another."""
    repeated: int = 0
    """Events that were captured more than once, from several nodes or one."""
    captured: int = 0
    """Events in the captured batches."""
    events: int = 0
    dead_letters: int = 0
    lag_bytes: int = 0
    """Bytes between the captured positions and the ends of the journals."""
    away: list[str] = []
    """The nodes that can't be reached, and why."""
    positions: dict[str, int] = {}
    """By the epoch of a node's journal: the position up to which it was captured."""
    stage: str = "starting"
    commits: int = 0


class PipelineProgress:
    """Figures that several threads update."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._lock = threading.Lock()
        self._marks: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])

    def add(self, **counts: int) -> None:
        """Add to figures."""
        with self._lock:
            for name, count in counts.items():
                setattr(self.figures, name, getattr(self.figures, name) + count)
            now = time.monotonic()
            self._marks.append((now, self.figures.batches, self.figures.settled))
            while len(self._marks) > 2 and now - self._marks[0][0] > RATE_S:
                self._marks.popleft()

    def put(self, **values: Any) -> None:
        """Set figures."""
        with self._lock:
            for name, value in values.items():
                setattr(self.figures, name, value)

    def rates(self) -> tuple[float, float]:
        """Batches captured and events settled per second, recently."""
        with self._lock:
            then, batches, settled = self._marks[0]
            span = max(time.monotonic() - then, 1e-3)
            return (self.figures.batches - batches) / span, (self.figures.settled - settled) / span


def lag(progress: Any) -> tuple[int, list[str]]:
    """The lag behind the journals in bytes, and the nodes that are away, from a streaming query's progress."""
    behind, away = 0, []
    for source in (progress or {}).get("sources", []):
        latest, end = _offset(source.get("latestOffset")), _offset(source.get("endOffset"))
        for key, value in latest.items():
            if isinstance(value, int):
                behind += max(0, value - int(end.get(key, value)))
            else:
                away.append(f"{key} {value}")
    return behind, away


def captured(progress: Any) -> dict[str, int]:
    """By the epoch of a node's journal: the position up to which a query has read it.

    >>> captured({"sources": [{"endOffset": '{"plant@e1": 70}'}]})
    {'e1': 70}
    """
    ends = (_offset(source.get("endOffset")) for source in (progress or {}).get("sources", []))
    return {
        key.rpartition("@")[2]: value for end in ends for key, value in end.items() if isinstance(value, int)
    }


def _offset(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


class ProgressScreen:
    """Shows progress as a live table in a terminal, or as log lines elsewhere."""

    def __init__(self, progress: PipelineProgress, is_quiet: bool = False) -> None:
        self._progress = progress
        self._console = Console(stderr=True, quiet=is_quiet)
        self._live: Live | None = None
        self._last_line = ""

    def __enter__(self) -> ProgressScreen:
        if self._console.is_terminal and not self._console.quiet:
            self._live = Live(console=self._console, get_renderable=self.table, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *args: object) -> None:
        if self._live is not None:
            self._live.stop()
        self.line()

    def line(self) -> None:
        """Print one line for a log, if a figure changed."""
        figures = self._progress.figures
        text = (
            f"captured {figures.batches:,} batches, settled {figures.settled:,} events, held {figures.held:,}, "
            f"lost {figures.lost:,}, late {figures.late:,}, dead letters {figures.dead_letters:,}"
        )
        if text != self._last_line and self._live is None and figures.batches:
            self._last_line = text
            self._console.print(text, highlight=False)

    def table(self) -> Table:
        """One row per stage."""
        figures = self._progress.figures
        batches_s, events_s = self._progress.rates()
        table = Table(title=f"pipeline: {figures.stage}", title_justify="left", box=None, pad_edge=False)
        for name in ("stage", "done", "rate", "state"):
            table.add_column(name, justify="left" if name in ("stage", "state") else "right")
        behind = f"{figures.lag_bytes / 2**20:,.1f} MiB behind the journals"
        away = "".join(f"; {text}" for text in figures.away)
        table.add_row("capture", f"{figures.batches:,} batches", f"{batches_s:,.0f}/s", behind + away)
        gaps = f"gaps {figures.gaps:,} · held {figures.held:,} · recovered {figures.recovered:,}"
        table.add_row("settle", f"{figures.settled:,} events", f"{events_s:,.0f}/s", gaps)
        losses = f"lost {figures.lost:,} · late {figures.late:,} · repeated {figures.duplicates:,}"
        table.add_row("", "", "", f"[red]{losses}[/red]" if figures.lost else losses)
        table.add_row("events", f"{figures.events:,} rows", "", "")
        table.add_row("dead letters", f"{figures.dead_letters:,}", "", f"{figures.outcomes:,} outcome rows")
        return table
