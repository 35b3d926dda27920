"""A lake in an object store, on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from reknit.spark.lake.commits import Commit, LakeError
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.lost_events import accept_losses, lost_events, summary
from reknit.spark.lake.maintenance import compact, expire
from reknit.spark.lake.tables import TABLE_OF
from reknit.spark.lake.task_files import TaskFiles, lake_file
from tests.spark.object_store import BUCKET, object_store

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", autouse=True)
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with object_store() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def put(lake: Lake, id: int, start: int, day: int = 1) -> None:
    """Commit a range of table `losses`, written as a task does."""
    time = pa.array([day * 86_400_000_000], pa.timestamp("us", "UTC"))
    rows = {
        "topic": pa.array(["plant/a"]),
        "source": pa.array([b"s" * 16], pa.binary()),
        "start": pa.array([start], pa.int64()),
        "stop": pa.array([start + 10], pa.int64()),
        "reason": pa.array(["missing"]),
        "noticed": time,
        "time": time,
    }
    plan = TaskFiles(lake.storage.root, f"settle-{id}-ab", {"": "losses"})
    results = plan.write([pa.RecordBatch.from_pydict(rows)])
    files = [lake_file(row) for one in results for row in one.to_pylist()]
    lake.commit(Commit("settle", id, 0, files, meta={"through": id}))


def test_commits_are_there_for_everybody(url: str) -> None:
    lake = Lake.create(url)
    for id in range(3):
        put(lake, id, 1 + 20 * id)
    again = Lake(url)
    assert again.id == lake.id
    assert [file.commit for file in again.files("losses")] == [0, 1, 2]
    assert again.log("settle").has(2)
    starts = DeltaTable(f"{url}/losses").to_pyarrow_table()["start"].to_pylist()
    assert sorted(starts) == [1, 21, 41]
    with pytest.raises(LakeError, match=f"^{url}: commit 2 of stage settle already exists"):
        put(again, 2, 100)


def test_losses_are_read_and_accepted(url: str) -> None:
    lake = Lake.create(url)
    put(lake, 0, 51)
    accept_losses(lake, ["all"], lost_events(lake))
    assert summary(Lake(url), lost_events(lake)).accepted == 10
    assert TABLE_OF["accepted_losses"].name in lake.files("accepted_losses")[0].path


def test_maintenance(url: str) -> None:
    lake = Lake.create(url)
    for id in range(3):
        put(lake, id, 1 + 20 * id, day=1 + id // 2)
    done = compact(lake, keep_s=0)
    assert (done.files_before, done.files_after, done.files_deleted) == (2, 1, 2)
    assert done.bytes_deleted > 100
    assert expire(lake, "1970-01-03", keep_s=0).rows_expired == 2
    assert DeltaTable(f"{url}/losses").to_pyarrow_table()["start"].to_pylist() == [41]


def test_locks_are_on_this_machine(url: str, tmp_path: Path) -> None:
    lake = Lake.create(url, work=tmp_path / "work")
    with lake.locked():
        assert (tmp_path / "work" / "_lock").exists()
        with pytest.raises(LakeError, match="another process writes"), Lake(url, tmp_path / "work").locked():
            pass


def test_missing_lake_is_said_to_be_missing(url: str) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        Lake(url)
