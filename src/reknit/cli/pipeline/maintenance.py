"""Carries out `reknit pipeline compact` and `expire`, without Spark."""

from __future__ import annotations

import datetime as dt

import typer

from reknit.cli.output import fail, print_json, size
from reknit.cli.pipeline.options import LakeRoot
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import MaintenanceReport, compact, expire
from reknit.spark.lake.migrate import migrate
from reknit.spark.lake.tables import TABLE_OF


def compact_lake(lake: LakeRoot, keep_s: float, as_json: bool) -> None:
    """Merge small files, and print what was done."""
    _print_report(compact(Lake(lake), keep_s=keep_s), as_json)


def expire_days(lake: LakeRoot, day: str, tables: list[str], keep_s: float, as_json: bool) -> None:
    """Remove the days before `day`, and print what was done."""
    if unknown := [name for name in tables if name not in TABLE_OF or TABLE_OF[name].is_state]:
        fail(f"--table {unknown[0]!r} is not a table that can expire")
    _print_report(expire(Lake(lake), day, tables, keep_s), as_json)


def first_day(before: str, older_than: int | None) -> str:
    """The first day that stays."""
    if older_than:
        return str(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=older_than))
    try:
        dt.date.fromisoformat(before)
    except ValueError:
        fail("name the days to remove: --before 2026-01-31, or --older-than 30")
    return before


def _print_report(done: MaintenanceReport, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    typer.echo(
        f"{done.files_before:,} files became {done.files_after:,}, {done.runs_pruned:,} rows of runs were pruned, "
        f"{done.files_expired:,} files ({done.rows_expired:,} rows) expired, "
        f"{done.files_deleted:,} deleted ({size(done.bytes_deleted)})"
    )


def migrate_lake(lake: LakeRoot, as_json: bool) -> None:
    """Bring a lake over to this format, and print what was brought over."""
    done = migrate(lake)
    if as_json:
        print_json(done)
    elif not done.rows:
        typer.echo(f"{lake} has format {done.was_format} already")
    else:
        events = ", ".join(f"{rows:,} rows of {name}" for name, rows in done.rows.items() if rows)
        typer.echo(f"{lake} had format {done.was_format}: brought over {events or 'no rows'}")
