"""Reads a node's ledger in pages: it has a row for every durable subscriber and topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

PAGE_ROWS: Final = 2_000


async def read_ledger(
    ask: Callable[..., Awaitable[Any]], topic: str = "", unbalanced: bool = False, page_rows: int = PAGE_ROWS
) -> list[dict[str, Any]]:
    """All rows. `ask` sends an admin request; `topic` is a pattern."""
    rows: list[dict[str, Any]] = []
    args: dict[str, Any] = {"topic": topic, "unbalanced": unbalanced, "rows_max": page_rows}
    while True:
        page = await ask("ledger", **args)
        rows += page
        if len(page) < page_rows:
            return rows
        args["after"] = [page[-1]["subscriber"], page[-1]["topic"]]
