"""A lake of format 1, with its own log, becomes one of Delta tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from reknit.cli.main import app
from reknit.spark.lake.commits import FOLDED, Commit, LakeError
from reknit.spark.lake.delta import DeltaFiles
from reknit.spark.lake.lake import REDRIVEN, Lake
from reknit.spark.lake.migrate import migrate
from reknit.spark.stages.settle.newly_settled import newly_settled


class OldLake:
    """A lake as the former format was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "lake.json").write_text('{"format":1,"id":"old"}')

    def file(self, table: str, name: str, day: str = "2026-01-01", **more: Any) -> dict[str, Any]:
        path = self.root / table / f"day={day}" / "topic_key=a" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"topic": [name]}), path)
        known = {"table": table, "path": str(path.relative_to(self.root)), "rows": 1, "day": day}
        return {**known, "bytes": path.stat().st_size, "topic_key": "a", **more}

    def commit(self, stage: str, id: int, *files: dict[str, Any], suffix: str = "", **more: Any) -> None:
        folder = self.root / "_log" / stage
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"stage": stage, "id": id, "time_us": 5, "files": files, **more})
        (folder / f"{id:020d}{suffix}.json").write_text(text)


@pytest.fixture
def old(tmp_path: Path) -> OldLake:
    """Ten commits, of which the first are folded and compacted; the last one is not processed."""
    lake = OldLake(tmp_path / "lake")
    for stage, table in (("capture_batches", "batches"), ("settle", "settled")):
        meta = {"through": 3, "since": 2, "earlier": {}, "kept": {}} if stage == "settle" else {}
        gone = [lake.file(table, f"{stage}-{id}-ab", commit=id) for id in range(2)]
        lake.commit(stage, 1, *gone, suffix=".folded", meta=meta)
        for id in (2, 3):
            files = [lake.file(table, f"{stage}-{id}-ab")]
            if stage == "settle":
                files.append({**lake.file("coverage", f"settle-{id}-ab"), "day": "", "topic_key": ""})
            lake.commit(stage, id, *files, meta=meta)
        joined = lake.file(table, f"compact-{table}", commit=1)
        (lake.root / "_log" / "compact").mkdir(exist_ok=True)
        lake.commit("compact", int(stage == "settle"), joined, removes=[file["path"] for file in gone])
    lake.commit("events", 0, lake.file("events", "events-0-ab", "none"), meta={"through": 2})
    (lake.root / "_log" / "redrive").mkdir()
    (lake.root / "_log" / "redrive" / "00000000000000000004.done").touch()
    return lake


def test_files_that_count_become_files_of_delta_tables(old: OldLake) -> None:
    done = migrate(old.root)
    assert {name: rows for name, rows in done.rows.items() if rows} == {
        "batches": 3,
        "settled": 3,
        "coverage": 1,
        "events": 1,
    }
    lake = Lake(old.root)
    assert lake.id == "old"
    assert [file.commit for file in lake.files("batches")] == [FOLDED, 2, 3]
    assert [Path(file.path).stem for file in lake.table("coverage").files()] == ["settle-3-ab"]
    [event] = lake.table("events").open().to_pyarrow_table(columns=["topic", "day"]).to_pylist()
    assert event == {"topic": "events-0-ab", "day": None}
    assert not (old.root / "_log").exists()


def test_stages_resume_where_they_were(old: OldLake) -> None:
    migrate(old.root)
    lake = Lake(old.root)
    lake.redo()
    assert [file.commit for file in lake.files("batches")] == [FOLDED, 2, 3]
    new = newly_settled(lake, "events")
    assert new is not None
    assert (new.id, new.through, [file.commit for file in new.pieces]) == (1, 3, [3])
    assert [file.commit for file in new.batches] == [3]
    assert lake.log(REDRIVEN).has(4)
    lake.commit(Commit("capture_batches", 4, 0))
    with pytest.raises(LakeError, match="commit 3 of stage settle already exists"):
        lake.commit(Commit("settle", 3, 0))


def test_interrupted_migration_starts_over(old: OldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = DeltaFiles.commit

    def fail(delta: DeltaFiles, *args: Any, **options: Any) -> bool:
        if delta.table.name == "runs":
            raise KeyboardInterrupt
        return commit(delta, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaFiles, "commit", fail)
        with pytest.raises(KeyboardInterrupt):
            migrate(old.root)
    with pytest.raises(LakeError, match="it has format 1; bring it over with reknit pipeline migrate"):
        Lake(old.root)
    migrate(old.root)
    assert len(Lake(old.root).files("batches")) == 3


def test_lake_with_a_missing_file_stays_as_it_was(old: OldLake) -> None:
    next((old.root / "events").rglob("*.parquet")).unlink()
    with pytest.raises(
        LakeError, match=r"events-0-ab.parquet of table events is missing; .*nothing was changed"
    ):
        migrate(old.root)
    assert (old.root / "_log" / "events").exists()


def test_command_says_what_it_brought_over(old: OldLake) -> None:
    first, again = (CliRunner().invoke(app, ["pipeline", "migrate", "--lake", str(old.root)]) for _ in "12")
    assert "had format 1: brought over 3 rows of batches, 3 rows of settled" in first.output
    assert "has format 2 already" in again.output
