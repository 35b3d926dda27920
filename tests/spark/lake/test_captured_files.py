"""Which commits a stage after settle reads, and which of them compaction leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reknit.spark.lake.captured_files import TOPICS_MAX, earlier_batches
from reknit.spark.lake.commits import FOLDED, Commit, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import compact, expire, processed_commits
from reknit.spark.lake.tables import topic_key
from reknit.spark.stages.settle.newly_settled import newly_settled

TOPICS = ("plant/a", "plant/b")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def commit(lake: Lake, stage: str, table: str, id: int, **meta: Any) -> None:
    """Commit a file for each topic."""
    files = []
    for topic in TOPICS:
        path = (
            lake.root
            / table
            / "day=2026-01-01"
            / f"topic_key={topic_key(topic)}"
            / f"{stage}-{id}-ab.parquet"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"topic": [topic]}), path)
        relative = str(path.relative_to(lake.root))
        files.append(LakeFile(table, relative, 1, path.stat().st_size, "2026-01-01", topic_key(topic)))
    lake.log(stage).add(Commit(stage, id, 0, files, meta=meta))


def settle(lake: Lake, id: int, **meta: Any) -> None:
    """Capture and settle as commit `id` of both."""
    commit(lake, "capture_batches", "batches", id)
    commit(lake, "settle", "settled", id, through=id, since=id - 1, **{"earlier": {}, "kept": {}, **meta})


def processed(lake: Lake, stage: str, id: int, through: int) -> None:
    lake.log(stage).add(Commit(stage, id, 0, meta={"through": through}))


def names(files: list[LakeFile]) -> list[tuple[int | None, str]]:
    return sorted((file.commit, file.topic_key[:7]) for file in files)


def test_stage_that_is_new_in_a_folded_lake_gets_everything(lake: Lake) -> None:
    for id in range(4):
        settle(lake, id)
        processed(lake, "dead_letters", id, id)
    # Large files, so that nothing is merged: only the logs are folded.
    assert compact(lake, file_bytes=1).files_before == 0
    new = newly_settled(lake, "events")
    assert new is not None
    assert (len(new.pieces), len(new.batches), new.through) == (8, 8, 3)


def test_range_that_was_held_is_looked_up_on_its_topic_alone(lake: Lake) -> None:
    for id in range(5):
        settle(lake, id, kept=earlier_batches([(1, "plant/a")]))
        processed(lake, "events", id, id)
    settle(lake, 5, earlier=earlier_batches([(1, "plant/a")]))
    new = newly_settled(lake, "events")
    assert new is not None
    assert names(new.batches) == [(1, "plant_a"), (5, "plant_a"), (5, "plant_b")]


def test_compaction_leaves_alone_what_a_stage_still_has_to_process(lake: Lake) -> None:
    for id in range(5):
        settle(lake, id, kept=earlier_batches([(1, "plant/a")]))
    for stage in ("events", "dead_letters"):
        processed(lake, stage, 0, 3)
    done = processed_commits(lake)
    assert (done.settle, done.capture) == (3, 3)
    assert compact(lake, keep_s=0).files_before == 2 * (4 + 4)
    assert compact(lake, keep_s=0).files_before == 0  # the same again: nothing was processed meanwhile
    for table in ("settled", "batches"):
        assert names(lake.files(table)) == [
            (FOLDED, "plant_a"),
            (FOLDED, "plant_b"),
            (4, "plant_a"),
            (4, "plant_b"),
        ]


def test_range_that_was_held_is_found_after_compaction(lake: Lake) -> None:
    for id in range(5):
        settle(lake, id, kept=earlier_batches([(1, "plant/a")]))
    for stage in ("events", "dead_letters"):
        processed(lake, stage, 0, 4)
    assert compact(lake, keep_s=0).files_after == 4
    settle(lake, 5, earlier=earlier_batches([(1, "plant/a")]))
    new = newly_settled(lake, "events")
    assert new is not None
    assert names(new.batches) == [(FOLDED, "plant_a"), (5, "plant_a"), (5, "plant_b")]


def test_day_with_batches_of_an_open_gap_does_not_expire(lake: Lake) -> None:
    for id in range(2):
        settle(lake, id, kept=earlier_batches([(1, "plant/a")]))
    for stage in ("events", "dead_letters"):
        processed(lake, stage, 0, 1)
    assert expire(lake, "2027-01-01", ["batches"], keep_s=0).files_expired == 0
    settle(lake, 2)
    for stage in ("events", "dead_letters"):
        processed(lake, stage, 1, 2)
    assert expire(lake, "2027-01-01", ["batches"], keep_s=0).files_expired == 6


def test_ranges_that_were_held_before_commits_were_recorded_are_looked_up_everywhere(lake: Lake) -> None:
    for id in range(3):
        settle(lake, id)
    processed(lake, "events", 0, 2)
    settle(lake, 3, earlier=earlier_batches([(None, "plant/b")]))
    new = newly_settled(lake, "events")
    assert new is not None
    assert names(new.batches) == [
        (0, "plant_b"),
        (1, "plant_b"),
        (2, "plant_b"),
        (3, "plant_a"),
        (3, "plant_b"),
    ]


def test_commit_with_many_topics_is_named_as_a_whole() -> None:
    rows = [(7, f"t/{number}") for number in range(TOPICS_MAX + 1)]
    assert earlier_batches(rows) == {"7": ["*"]}
    assert len(earlier_batches(rows[1:])["7"]) == TOPICS_MAX
