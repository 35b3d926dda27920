"""A bar for commands that take a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def with_progress(verb: str, work: Callable[[Callable[[int, int], object]], T]) -> T:
    """Show a bar on stderr while something runs, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(verb), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("")
        return work(lambda done, total: bar.update(task, completed=done, total=total))
