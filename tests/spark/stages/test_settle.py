"""Settle on a lake: every event once and in order, whatever was repeated, reordered, lost or late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reknit.batch import Batch
from reknit.spark.lake.commits import LakeError
from reknit.spark.lake.history import Archive
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import compact
from reknit.spark.lake.spark_tables import read
from reknit.spark.stages.audit.lake import losses_lake
from reknit.spark.stages.dead_letters import dead_letters_lake
from reknit.spark.stages.settle import run
from reknit.spark.stages.settle.newly_settled import newly_settled
from reknit.spark.stages.settle.run import settle_lake
from tests.spark.lakes import captured, events, ranges
from tests.spark.running_node import batch, batches, source
from tests.spark.stages.test_recover import FakeCache

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOW = datetime(2026, 1, 2, tzinfo=UTC)
STREAM = ("plant/temp", source("a"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def test_repeated_micro_batch_is_captured_once(spark: SparkSession, lake: Lake) -> None:
    assert captured(spark, lake, 0, batches("a", 1, 21)) == 2
    assert captured(spark, lake, 0, batches("a", 1, 21)) == 0
    with pytest.raises(LakeError, match="ends with commit 0, but the next one is 2"):
        captured(spark, lake, 2, batches("a", 21, 31))


def test_gap_holds_back_then_is_filled_in_order(spark: SparkSession, lake: Lake) -> None:
    captured(spark, lake, 0, [*batches("a", 1, 11), *batches("a", 21, 31)])
    first = settle_lake(spark, lake, 60.0, now=NOW)
    assert first is not None
    assert (first.settled, first.held, first.gap, first.lost) == (10, 10, 10, 0)
    assert events(spark, lake)[STREAM] == list(range(1, 11))
    captured(spark, lake, 1, [*batches("a", 5, 21), *batches("a", 25, 29)], "line2")
    second = settle_lake(spark, lake, 60.0, now=NOW + timedelta(seconds=5))
    assert second is not None
    assert (second.settled, second.held, second.gap, second.lost) == (20, 0, 0, 0)
    assert events(spark, lake)[STREAM] == list(range(1, 31))
    assert settle_lake(spark, lake, 60.0) is None


def test_events_can_be_written_first_when_the_lake_was_compacted(spark: SparkSession, lake: Lake) -> None:
    for id in range(3):
        captured(spark, lake, id, batches("a", 10 * id + 1, 10 * id + 11))
        settle_lake(spark, lake, 0.0)
    dead_letters_lake(spark, lake)
    done = compact(lake, keep_s=0)
    assert done.files_before > done.files_after
    assert events(spark, lake)[STREAM] == list(range(1, 31))
    captured(spark, lake, 3, batches("a", 31, 41))
    settle_lake(spark, lake, 0.0)
    assert events(spark, lake)[STREAM] == list(range(1, 41))
    assert [(b.first, b.stop) for b in Archive(lake).find(*STREAM, 8, 33)] == [
        (8, 11),
        (11, 21),
        (21, 31),
        (31, 33),
    ]


def test_loss_is_named_and_what_comes_later_is_kept_as_late(spark: SparkSession, lake: Lake) -> None:
    captured(spark, lake, 0, [*batches("a", 1, 11), *batches("a", 21, 31)])
    settle_lake(spark, lake, 60.0, now=NOW)
    given_up = settle_lake(spark, lake, 60.0, now=NOW + timedelta(seconds=61))
    assert given_up is not None
    assert (given_up.settled, given_up.lost) == (10, 10)
    assert ranges(spark, lake, "losses") == [(11, 21)]
    assert [loss["came_late"] for loss in losses_lake(spark, lake)] == [0]
    captured(spark, lake, 1, batches("a", 9, 16))
    late = settle_lake(spark, lake, 60.0, now=NOW + timedelta(seconds=70))
    assert late is not None
    assert (late.settled, late.late) == (0, 5)
    [loss] = losses_lake(spark, lake)
    assert (loss["start"], loss["stop"], loss["came_late"], loss["reason"]) == (11, 21, 5, "missing")
    assert events(spark, lake)[STREAM] == [*range(1, 11), *range(21, 31)]


def test_gap_is_recovered_from_a_cache_and_given_up_only_when_all_were_asked(
    spark: SparkSession, lake: Lake
) -> None:
    captured(spark, lake, 0, [*batches("a", 1, 11), *batches("a", 31, 41)])
    has_some, away = FakeCache(*batches("a", 11, 26, 15)), FakeCache(is_away=True)
    first = settle_lake(spark, lake, 0.0, [("has some", has_some), ("away", away)], NOW)
    assert first is not None
    assert (first.recovered, first.settled, first.held, first.lost) == (15, 25, 10, 0)
    second = settle_lake(spark, lake, 0.0, [("has some", has_some)], NOW)
    assert second is not None
    assert (second.settled, second.lost) == (10, 5)
    assert ranges(spark, lake, "losses") == [(26, 31)]
    assert events(spark, lake)[STREAM] == [*range(1, 26), *range(31, 41)]
    assert [(b.first, b.stop) for b in Archive(lake).find(*STREAM, 9, 33)] == [(9, 11), (11, 26), (31, 33)]
    assert Archive(lake).find(*STREAM, 12, 13)[0].payloads() == [b"a-12"]
    assert Archive(lake).held(*STREAM).ranges() == [(1, 26), (31, 41)]


def test_event_with_a_known_fingerprint_is_skipped(spark: SparkSession, lake: Lake) -> None:
    def marked(name: str, first: int, prints: list[str | None]) -> Batch:
        columns = {"fingerprint": prints, "headers": [{"n": str(at)} for at in range(len(prints))]}
        return batch(name, first, [f"{name}{at}" for at in range(len(prints))], columns=columns)

    captured(spark, lake, 0, [marked("a", 1, ["x", "y", None])])
    settle_lake(spark, lake, 0.0)
    captured(spark, lake, 1, [marked("b", 1, ["y", "z", "z", None])])
    report = settle_lake(spark, lake, 0.0)
    assert report is not None
    assert (report.settled, report.duplicates) == (4, 2)
    assert events(spark, lake) == {STREAM: [1, 2, 3], ("plant/temp", source("b")): [2, 4]}
    repeated = read(spark, lake, "duplicates").orderBy("seq").collect()
    assert [(r["fingerprint"], r["seq"], bytes(r["first_source"]), r["first_seq"]) for r in repeated] == [
        ("y", 1, source("a"), 2),
        ("z", 3, source("b"), 2),
    ]
    headers = {
        r["seq"]: r["headers"] for r in read(spark, lake, "events").where("payload like 'b%'").collect()
    }
    assert headers == {2: {"n": "1"}, 4: {"n": "3"}}


def test_gap_that_nobody_was_asked_for_is_not_given_up(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More gaps than one run asks for: the others wait for the next run, and nothing is lost that a cache holds."""
    monkeypatch.setattr(run, "GAPS_MAX", 2)
    captured(spark, lake, 0, [one for name in "abc" for one in batches(name, 2, 3)])
    cache = FakeCache(*batches("b", 1, 2), *batches("c", 1, 2))
    first = settle_lake(spark, lake, 0.0, [("one", cache)], NOW)
    assert first is not None
    assert (first.lost, first.recovered, first.gap, first.held, first.unasked) == (1, 1, 1, 1, 1)
    second = settle_lake(spark, lake, 0.0, [("one", cache)], NOW)
    assert second is not None
    assert (second.lost, second.recovered, second.gap, second.unasked) == (0, 1, 0, 0)
    assert len(cache.asked) == 3


def test_batches_of_held_ranges_are_found_when_their_turn_comes(spark: SparkSession, lake: Lake) -> None:
    captured(spark, lake, 0, [*batches("a", 1, 11), *batches("a", 21, 31), *batches("b", 1, 11, topic="b")])
    settle_lake(spark, lake, 60.0, now=NOW)
    assert len(events(spark, lake)) == 2
    captured(spark, lake, 1, batches("b", 11, 21, topic="b"))
    settle_lake(spark, lake, 60.0, now=NOW)
    new = newly_settled(lake, "events")
    assert new is not None
    assert [file.commit for file in new.batches] == [1]  # the open gap of another topic costs nothing here
    captured(spark, lake, 2, batches("a", 11, 21))
    settle_lake(spark, lake, 60.0, now=NOW)
    assert events(spark, lake) == {STREAM: list(range(1, 31)), ("b", source("b")): list(range(1, 21))}
