"""Prints the reports of `reknit pipeline audit`, `losses`, `dead-letters` and `latency`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from reknit import environment
from reknit.cli.output import events, print_json, say
from reknit.cli.pipeline.options import LakeRoot, SparkOptions
from reknit.cli.pipeline.spark_session import open_lake
from reknit.cli.tables import cell
from reknit.errors import LocalError
from reknit.spark.lake.lost_events import EVERYTHING, parse_range
from reknit.spark.pipeline.lake_report import note_audit
from reknit.spark.pipeline.report import report_html
from reknit.spark.stages.audit.lake import Audit, audit_lake, latency_lake, losses_lake, plain_row
from reknit.spark.stages.dead_letters import GROUPS, dead_letters_by
from reknit.spark.stages.redrive import select_letters

PROBLEMS_MAX = 20
"""How many problems an audit prints."""
LEDGER_COLUMNS = (
    *("node", "subscriber", "topic"),
    *("published", "accepted", "dead_lettered", "lost", "in_flight", "retries"),
)
LATENCY_GROUPS = ("node", "subscriber", "topic")


def report_audit(
    lake: LakeRoot,
    on: SparkOptions,
    report: Path | None,
    window_s: int,
    accepts: Sequence[str],
    as_json: bool,
) -> bool:
    """Audit the lake, and print the ledger. True if it balances and nothing is lost, or only what was accepted."""
    for text in accepts:
        if text.strip() != EVERYTHING:
            parse_range(text)
    with open_lake(lake, on) as (spark, folder):
        found = audit_lake(spark, folder, window_s, report is not None or as_json, accepts)
    if isinstance(lake, Path):
        note_audit(
            lake,
            at_us=environment.time_us(),
            is_balanced=found.is_good,
            rows=len(found.rows),
            problems=len(found.problems),
            page=report,
        )
    if report is not None:
        report.write_text(report_html(found), encoding="utf-8")
        say(f"wrote {report}")
    if as_json:
        print_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        _print_ledger(found)
    return found.is_good


def _print_ledger(found: Audit) -> None:
    rows = [{name: getattr(row, name) for name in LEDGER_COLUMNS} for row in found.rows]
    _print_rows(rows, as_json=False, nothing="there is no durable subscriber, so nothing is owed")
    for problem in found.problems[:PROBLEMS_MAX]:
        where = f"{problem.subscriber}, {problem.topic}, {problem.source} [{problem.start}, {problem.stop})"
        say(f"problem: {where} {problem.problem}")
    if len(found.problems) > PROBLEMS_MAX:
        say(f"… and {len(found.problems) - PROBLEMS_MAX} more: see --json or --report")
    for lost in found.losses.ranges[:PROBLEMS_MAX]:
        say(f"lost: {lost} ({events(lost.stop - lost.start)})")
    if len(found.losses.ranges) > PROBLEMS_MAX:
        say(f"… and {len(found.losses.ranges) - PROBLEMS_MAX} more ranges: see --json")
    typer.echo(_verdict(found))


def _verdict(found: Audit) -> str:
    """The result in a line."""
    losses = found.losses
    words = ["balanced" if found.balanced else "NOT balanced"]
    if losses.unaccepted:
        words.append(f"{events(losses.unaccepted)} LOST (--accept-losses RANGE if that may be so)")
    if losses.accepted:
        words.append(f"{events(losses.accepted)} lost, which was accepted")
    return ", ".join(words)


def report_losses(lake: LakeRoot, on: SparkOptions, topic: str, limit: int, as_json: bool) -> None:
    """Print the ranges of lost events."""
    with open_lake(lake, on) as (spark, folder):
        rows = losses_lake(spark, folder, topic, limit)
    _print_rows(rows, as_json, "nothing is lost")


def report_dead_letters(
    lake: LakeRoot, on: SparkOptions, by: str, where: str, limit: int, as_json: bool
) -> None:
    """Print the number of dead letters per group."""
    names = _columns(by, GROUPS)
    with open_lake(lake, on) as (spark, folder):
        found = dead_letters_by(select_letters(spark, folder, where), names).limit(limit)
        rows = [plain_row(row) for row in found.collect()]
    _print_rows(rows, as_json, "there are no dead letters")


def report_latency(lake: LakeRoot, on: SparkOptions, by: str, as_json: bool) -> None:
    """Print quantiles of the time from publishing to acceptance."""
    names = _columns(by, LATENCY_GROUPS)
    with open_lake(lake, on) as (spark, folder):
        rows = latency_lake(spark, folder, names)
    _print_rows(rows, as_json, "nothing was accepted yet")


def _columns(text: str, known: Sequence[str]) -> list[str]:
    """The columns that option --by names."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise LocalError(f"--by {unknown[0]!r} is not a known column; use some of {', '.join(known)}")
    return names


def _print_rows(rows: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows that have the same columns, as a table or as JSON."""
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(nothing)
        return
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        is_number = isinstance(value, int | float)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    console = Console()
    Console(width=max(console.width, 160) if not console.is_terminal else None, highlight=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool | None):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int | float) else cell(str(value))
