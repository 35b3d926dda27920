"""What a pipeline says of its lake to the nodes that it reads: its tables with their sizes, and its last audit."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from reknit.spark.lake.tables import TABLES

AUDIT_FILE: Final = "_last_audit.json"
FILES_MAX: Final = 200_000
"""How many files are counted."""


def table_sizes(root: Path) -> list[dict[str, Any]]:
    """Each table that has files, with their number and size.

    >>> table_sizes(Path("/nowhere"))
    []
    """
    rows, left = [], FILES_MAX
    for table in TABLES:
        files = size = 0
        for folder, _, names in os.walk(root / table.name):
            for name in names:
                if name.endswith(".parquet") and left > 0:
                    left -= 1
                    files += 1
                    size += _size(Path(folder, name))
        if files:
            rows.append({"name": table.name, "files": files, "bytes": size})
    return rows


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # maintenance removed it meanwhile
        return 0


def note_audit(
    root: Path, *, at_us: int, is_balanced: bool, rows: int, problems: int, page: Path | None
) -> None:
    """Remember the result of an audit in its lake."""
    told = {"at_us": at_us, "is_balanced": is_balanced, "rows": rows, "problems": problems}
    path = root / AUDIT_FILE
    with suppress(OSError):  # a lake that may only be read can be audited, too
        _write(path, json.dumps({**told, "page": str(page.absolute()) if page else ""}))


def _write(path: Path, text: str) -> None:
    spare = path.with_suffix(".new")
    spare.write_text(text, encoding="utf-8")
    spare.replace(path)


def last_audit(root: Path) -> dict[str, Any] | None:
    """The result of the last audit; None if there was none.

    >>> last_audit(Path("/nowhere")) is None
    True
    """
    try:
        found = json.loads((root / AUDIT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
