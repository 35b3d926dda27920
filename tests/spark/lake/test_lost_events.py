"""What is lost, what came late after all, and what somebody has accepted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reknit.errors import LocalError
from reknit.spark.lake.commits import Commit, LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.lost_events import accept_losses, lost_events, parse_range, summary

SOURCE = b"a" * 16


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Events 51 to 60 are missing, of which 55 and 56 came late; 1 to 9 are from before the lake."""
    lake = Lake.create(tmp_path / "lake")
    tables = {
        "losses": [(1, 10, "beginning"), (51, 61, "missing")],
        "late": [(55, 57, "")],
    }
    files = []
    for name, rows in tables.items():
        path = lake.root / name / "settle-0-ab.parquet"
        columns = dict(zip(("start", "stop", "reason"), map(list, zip(*rows, strict=True)), strict=True))
        size = len(rows)
        pq.write_table(pa.table({"topic": ["plant/a"] * size, "source": [SOURCE] * size, **columns}), path)
        files.append(LakeFile(name, f"{name}/{path.name}", size, path.stat().st_size))
    lake.log("settle").add(Commit("settle", 0, 0, files))
    return lake


def named(lake: Lake) -> tuple[int, int, list[str]]:
    found = summary(lake, lost_events(lake))
    return found.events, found.unaccepted, [str(one) for one in found.ranges]


def test_what_came_late_is_not_lost(lake: Lake) -> None:
    at = f"plant/a:{SOURCE.hex()}"
    assert named(lake) == (8, 8, [f"{at}:51-55", f"{at}:57-61"])


def test_loss_of_a_subscriber_counts_once(lake: Lake) -> None:
    losses = lost_events(lake, [("plant/a", SOURCE, 50, 55), ("plant/b", SOURCE, 1, 3)])
    assert summary(lake, losses).events == 8 + 1 + 2


def test_accepted_ranges_are_recorded(lake: Lake) -> None:
    at = f"plant/a:{SOURCE.hex()}"
    accept_losses(lake, [f"{at}:51-53"], lost_events(lake))
    assert named(Lake(lake.root)) == (8, 6, [f"{at}:53-55", f"{at}:57-61"])
    accept_losses(lake, ["all"], lost_events(lake))
    assert named(Lake(lake.root)) == (8, 0, [])
    later = lost_events(lake, [("plant/b", SOURCE, 1, 3)])
    assert summary(lake, later).unaccepted == 2  # `all` was what was known then


@pytest.mark.parametrize("text", ["", "plant/a:51-61", "plant/a:61:51-61", f"plant/a:{'61' * 16}:61-51"])
def test_range_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="TOPIC:SOURCE:START-STOP"):
        parse_range(text)


def test_topic_may_have_colons() -> None:
    assert parse_range(f"up/a:b:{'61' * 16}:1-2").topic == "up/a:b"
