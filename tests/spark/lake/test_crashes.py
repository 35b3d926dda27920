"""A writer that dies between any two of its commits: the tables are the same in the end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reknit.spark.lake.commits import Commit, LakeError, LakeFile
from reknit.spark.lake.delta import DeltaFiles
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.tables import TABLE_OF, TABLES
from reknit.spark.lake.task_files import TaskFiles

STEPS = 1 + len({"settled", "losses", "coverage", "held"})
"""Commits to Delta tables that one commit of settle makes: table `runs`, and each table that it adds to."""


def settle(lake: Lake, id: int) -> Commit:
    """A commit of settle, with its files on disk; it takes back what was held before."""
    files = []
    for table in ("settled", "losses", "coverage", *(["held"] if id == 0 else [])):
        path = lake.root / table / f"settle-{id}-ab.parquet"
        pq.write_table(pa.table({"topic": [f"{table} {id}"]}), path)
        files.append(LakeFile(table, f"{table}/{path.name}", 1, path.stat().st_size))
    return Commit("settle", id, 0, files, meta={"through": id})


class Crash(BaseException):
    pass


def crash_after(steps: int) -> Any:
    """A commit of a table that crashes once so many were made."""
    made = 0
    commit = DeltaFiles.commit

    def crash(*args: Any, **options: Any) -> bool:
        nonlocal made
        if made == steps:
            raise Crash
        made += 1
        return commit(*args, **options)

    return crash


def content(lake: Lake) -> dict[str, list[str]]:
    """The files of every table, as Delta Lake has them."""
    found = {
        table.name: sorted(file.path for file in lake.table(table.name).files() if file.commit is not None)
        for table in TABLES
    }
    return {name: paths for name, paths in found.items() if paths}


EXPECTED = {
    "settled": ["settled/settle-0-ab.parquet", "settled/settle-1-ab.parquet"],
    "losses": ["losses/settle-0-ab.parquet", "losses/settle-1-ab.parquet"],
    "coverage": ["coverage/settle-1-ab.parquet"],
}


@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_tables_are_the_same_wherever_the_writer_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    lake = Lake.create(tmp_path / "lake")
    lake.commit(settle(lake, 0))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaFiles, "commit", crash_after(steps))
        if steps < STEPS:
            with pytest.raises(Crash):
                lake.commit(settle(lake, 1))
        else:
            lake.commit(settle(lake, 1))
    again = Lake(lake.root)
    again.redo()
    is_recorded = again.log("settle").has(1)
    assert is_recorded == (steps > 0)
    if not is_recorded:
        assert content(again)["held"] == ["held/settle-0-ab.parquet"]
        again.commit(settle(again, 1))
    assert content(again) == EXPECTED
    versions = {name: again.table(name).open().version() for name in EXPECTED}
    Lake(lake.root).redo()
    assert versions == {name: Lake(lake.root).table(name).open().version() for name in EXPECTED}


def test_kill_between_two_tables(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from reknit.spark.lake.delta import DeltaFiles\n"
        "from tests.spark.lake.test_crashes import Crash, Lake, crash_after, settle\n"
        "lake = Lake(Path(sys.argv[1]))\n"
        "DeltaFiles.commit = crash_after(2)\n"
        "try:\n"
        "    lake.commit(settle(lake, 1))\n"
        "except Crash:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    lake = Lake.create(tmp_path / "lake")
    lake.commit(settle(lake, 0))
    done = subprocess.run([sys.executable, "-c", program, str(lake.root)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(lake) != EXPECTED
    lake.redo()
    assert content(lake) == EXPECTED


def test_second_writer_does_not_add_to_a_table(tmp_path: Path) -> None:
    lake, other = (Lake.create(tmp_path / "lake") for _ in range(2))
    assert other.log("settle").last() is None
    lake.commit(settle(lake, 0))
    with pytest.raises(LakeError, match="commit 0 of stage settle already exists"):
        other.commit(settle(other, 0))
    assert len(content(other)["settled"]) == 1
    assert len(list((lake.root / "runs").rglob("settle-*.parquet"))) == 1


def test_full_disk_is_told_in_a_line_and_leaves_the_lake_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path / "lake")
    lake.commit(settle(lake, 0))
    made = settle(lake, 1)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rows = pa.RecordBatch.from_pydict({name: pa.nulls(1) for name in TABLE_OF["redrives"].names})
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        for write in (
            lambda: lake.commit(made),
            lambda: list(TaskFiles(str(lake.root), "redrive-0-ab", {"": "redrives"}).write([rows])),
        ):
            with pytest.raises(
                LakeError, match=r"No space left on device\); free some space and run it again"
            ):
                write()
    assert Lake(lake.root).log("settle").has(1) is False
    lake.commit(made)
    assert content(lake) == EXPECTED
