"""The audit names the ranges that do not balance, and its page shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.report import report_html
from reknit.spark.stages.audit.lake import audit_lake
from reknit.spark.stages.audit.totals import NEVER_CAPTURED
from reknit.spark.stages.settle.run import settle_lake
from tests.spark.lakes import captured, captured_outcomes
from tests.spark.running_node import TIME_US, batches, source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SENT = datetime.fromtimestamp(TIME_US / 1e6, UTC)


def opened(position: int, name: str, pattern: str = "plant/**") -> dict[str, Any]:
    return {
        "node": "line1",
        "position": position,
        "row": 0,
        "kind": "opened",
        "subscriber": name,
        "pattern": pattern,
    }


def ended(
    position: int, name: str, start: int, stop: int, end: str, ms: float = 5, **more: Any
) -> dict[str, Any]:
    times = {
        "attempts": 1,
        "code": 0,
        "reason": "",
        "text": "",
        "floor": 0,
        "time": SENT + timedelta(milliseconds=ms),
    }
    what = {"kind": "outcomes", "subscriber": name, "topic": "plant/temp", "source": source("a")}
    return {
        "node": "line1",
        "position": position,
        "row": 0,
        "start": start,
        "stop": stop,
        "end": end,
        **what,
        **times,
        **more,
    }


def test_audit_finds_and_names_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """One lake with every problem: an unreported loss, an outcome without an event, and a forgotten event."""
    lake = Lake.create(tmp_path / "lake")
    captured(spark, lake, 0, [*batches("a", 1, 51), *batches("a", 61, 101)])  # [51, 61) was taken out
    settle_lake(spark, lake, 0.0)
    rows = [
        opened(0, "good"),
        ended(10_001, "good", 1, 41, "ACCEPTED", 5),
        ended(10_002, "good", 41, 51, "ACCEPTED", 400, attempts=3),
        ended(10_003, "good", 61, 71, "DEAD_LETTERED", 9, reason="expired", code=4, attempts=0),
        ended(10_004, "good", 51, 61, "LOST", 9, reason="retention"),
        opened(10_010, "bad"),
        ended(10_011, "bad", 1, 56, "ACCEPTED"),
        ended(10_012, "bad", 95, 111, "ACCEPTED"),
        ended(10_013, "bad", 71, 81, "ACCEPTED", floor=100_000),
    ]
    captured_outcomes(spark, lake, 0, rows)
    audit = audit_lake(spark, lake, 60)
    good, bad = sorted(audit.rows, key=lambda row: row.subscriber, reverse=True)
    assert (good.published, good.accepted, good.dead_lettered, good.lost, good.in_flight) == (
        100,
        50,
        10,
        10,
        30,
    )
    assert good.retries == 20
    assert good.balanced
    found = [(p.start, p.stop, p.problem) for p in audit.problems]
    assert {p.subscriber for p in audit.problems} == {"bad"}
    assert found == [
        (51, 56, "ended, and is missing from every journal"),
        (56, 61, "is missing from every journal"),
        (61, 71, "has no outcome, though the node reports that nothing this old is owed"),
        (81, 95, "has no outcome, though the node reports that nothing this old is owed"),
        (101, 111, NEVER_CAPTURED),
    ]
    assert not bad.balanced
    assert not audit.balanced
    assert (audit.lost, audit.streams, audit.events) == (10, 1, 90)
    [strip] = audit.strips
    assert strip.lost == [(51, 61, "missing")]
    by = {row["subscriber"]: row for row in audit.latency}
    assert (by["good"]["events"], by["good"]["ms_p50"], by["good"]["ms_max"]) == (50, 5.0, 400.0)
    page = report_html(audit)
    assert "does not balance" in page
    assert "[51, 61) lost (missing)" in page
    assert "The ledger has 10; the table is still empty" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_page_of_an_empty_lake_says_so(spark: SparkSession, tmp_path: Path) -> None:
    audit = audit_lake(spark, Lake.create(tmp_path / "lake"))
    assert audit.balanced
    assert "nothing is owed to anybody" in report_html(audit)


def test_names_from_elsewhere_are_text_on_the_page(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    captured(spark, lake, 0, batches("a", 1, 11, topic="<script>/x"))
    settle_lake(spark, lake, 0.0)
    captured_outcomes(spark, lake, 0, [opened(0, "<b>", "**")])
    page = report_html(audit_lake(spark, lake))
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
