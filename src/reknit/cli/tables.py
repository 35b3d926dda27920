"""Tables for the terminal. It imports `rich`, which loads slowly, so a command imports it when it prints one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reknit.cli.output import plain

UNWRAPPED: Final = 10_000
"""The width of output that is not on a terminal."""


def console() -> Console:
    """Where tables are printed. What is read by a program is never wrapped, and NO_COLOR means no codes at all."""
    is_wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, width=UNWRAPPED if is_wide else None, color_system=system)


def cell(text: str, chars_max: int = 0) -> str:
    """Text from elsewhere, as `plain`, for a table, where brackets would be read as markup."""
    return escape(plain(text, chars_max))


def table(texts: tuple[str, ...], numbers: tuple[str, ...], more: tuple[str, ...] = ()) -> Table:
    """A table with these columns: texts, then numbers, then more texts."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in texts + numbers + more:
        is_number = title in numbers
        # a number that is broken over lines would be read as two
        made.add_column(title, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    return made


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    texts: tuple[str, ...],
    numbers: tuple[str, ...],
    more: tuple[str, ...] = (),
    shown: Callable[[Any], str] = str,
) -> None:
    """Print rows as a table. Its columns are keys of the rows."""
    made = table(texts, numbers, more)
    for row in rows:
        made.add_row(*(cell(shown(row[name])) for name in texts + numbers + more))
    console().print(made)
