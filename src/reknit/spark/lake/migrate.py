"""Brings over a lake of format 1, whose files were named by a log of reknit's own (`LAKE/_log`).

The Parquet files stay where they are: they become files of Delta tables. The label is written last, so a migration that
is interrupted starts over, and until then the lake is what it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from reknit.decoding import UNREADABLE
from reknit.spark.lake.commits import Commit, LakeError, LakeFile
from reknit.spark.lake.delta import DeltaFiles
from reknit.spark.lake.durable_files import write_file
from reknit.spark.lake.lake import REDRIVEN, LakeLabel, create_tables, read_label
from reknit.spark.lake.locks import locked_file
from reknit.spark.lake.runs import RunTable
from reknit.spark.lake.storage import Storage
from reknit.spark.lake.tables import FORMAT, RUNS, TABLES, Table

__all__ = ["MigrationReport", "migrate"]

OLD_FORMAT: Final = 1
_COMPACT: Final = "compact"


class MigrationReport(msgspec.Struct, frozen=True):
    """What became of a lake."""

    was_format: int
    rows: dict[str, int] = {}
    """By table, the rows that were brought over."""
    files: int = 0


class _OldCommit(msgspec.Struct, frozen=True):
    stage: str
    id: int
    time_us: int
    files: list[LakeFile] = []
    removes: list[str] = []
    meta: dict[str, Any] = {}


_decoder: Final = msgspec.json.Decoder(_OldCommit)


def migrate(root: str | Path) -> MigrationReport:
    """Bring a lake over to this format; does nothing if it has it. Raises `LakeError`."""
    folder = Path(root).absolute()
    label = read_label(Storage(folder), str(root))
    if label.format == FORMAT:
        return MigrationReport(FORMAT)
    if label.format != OLD_FORMAT:
        do = f"this reknit brings over format {OLD_FORMAT} and writes format {FORMAT}"
        raise LakeError(str(root), f"it has format {label.format}", do)
    with locked_file(folder, "_lock"):
        _clear(folder)
        create_tables(Storage(folder))
        tables = {table.name: _move_table(folder, label.id, table) for table in TABLES}
        _move_runs(folder, label.id)
        write_file(folder / "lake.json", msgspec.json.encode(LakeLabel(FORMAT, label.id)))
        shutil.rmtree(folder / "_log")
    rows = {name: sum(file.rows for file in files) for name, files in tables.items()}
    return MigrationReport(OLD_FORMAT, rows, sum(map(len, tables.values())))


def _clear(root: Path) -> None:
    """Remove what an interrupted migration left."""
    for table in TABLES:
        shutil.rmtree(root / table.name / "_delta_log", ignore_errors=True)
    shutil.rmtree(root / RUNS.name, ignore_errors=True)


def _move_table(root: Path, id: str, table: Table) -> list[LakeFile]:
    """Add the files of a table that count to the Delta table. Returns them."""
    files = [_renamed(file) for file in _live_files(root, table)]
    for file in files:
        if not (root / file.path).exists():
            what = f"file {file.path} of table {table.name} is missing"
            raise LakeError(str(root), what, "restore it from a copy; nothing was changed")
    last = _last(root, table.stage)
    if last >= 0:  # also without files: then nobody carries out the last commit again
        DeltaFiles(Storage(root), table).commit(f"{id}/{table.stage}", last, files)
    return files


def _move_runs(root: Path, id: str) -> None:
    """Record the commits of each stage in table `runs`. The files of folded ones are in their tables already."""
    runs = RunTable(Storage(root), id)
    for stage in dict.fromkeys(table.stage for table in TABLES):
        for commit in _commits(root, stage):
            files = [] if any(file.commit is not None for file in commit.files) else commit.files
            moved = [_renamed(file) for file in files]
            runs.add(Commit(stage, commit.id, commit.time_us, moved, commit.meta))
    done = [int(mark.stem) for mark in (root / "_log" / "redrive").glob("*.done")]
    if done:
        runs.add(Commit(REDRIVEN, max(done), 0))


def _renamed(file: LakeFile) -> LakeFile:
    """A file with its place in a Delta table: a folder without a day stands for null."""
    return msgspec.structs.replace(file, day="" if file.day == "none" else file.day, commit=None)


# -- the log of format 1


def _live_files(root: Path, table: Table) -> list[LakeFile]:
    commits = _commits(root, table.stage)
    if table.is_state:
        return [file for commit in commits[-1:] for file in commit.files if file.table == table.name]
    changes = _commits(root, _COMPACT)
    removed = {path for commit in changes for path in commit.removes}
    every = [file for commit in (*commits, *changes) for file in commit.files]
    return [file for file in every if file.table == table.name and file.path not in removed]


def _last(root: Path, stage: str) -> int:
    return max((commit.id for commit in _commits(root, stage)), default=-1)


def _commits(root: Path, stage: str) -> list[_OldCommit]:
    """The commits of a stage, oldest first; those that were folded are one."""
    return list(_read(root / "_log" / stage))


def _read(folder: Path) -> Iterator[_OldCommit]:
    names = sorted(path.name for path in folder.glob("*.json"))
    folded = max((name for name in names if name.endswith(".folded.json")), default="")
    later = [name for name in names if name[:20] > folded[:20] and not name.endswith(".folded.json")]
    for name in [folded, *later] if folded else later:
        try:
            yield _decoder.decode((folder / name).read_bytes())
        except UNREADABLE as error:
            where = str(folder / name)
            raise LakeError(where, f"can't be read ({error})", "restore it from a copy") from None
