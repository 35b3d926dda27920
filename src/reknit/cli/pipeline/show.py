"""`reknit pipeline audit`, `losses`, `dead-letters` and `latency`: reports from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import FAILED, print_json, say
from reknit.cli.pipeline.spark import LAKE, LOCAL, Conf, Lake, Limit, Master, Memory, reading

if TYPE_CHECKING:
    from reknit.spark.stages.audit.lake import Audit


def audit(
    lake: Lake = LAKE,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page with charts.")
    ] = None,
    window: Annotated[
        int,
        typer.Option("--window", metavar="SECONDS", min=1, help="Length of the time windows in the report."),
    ] = 3600,
    master: Master = LOCAL,
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Check the ledger: published = accepted + dead-lettered + lost + in flight. Exit code 1 if it does not balance."""
    with reading(lake, master, memory, conf) as (spark, folder):
        from reknit.spark.stages.audit.lake import audit_lake

        found = audit_lake(spark, folder, window, is_full=report is not None or as_json)
    if report is not None:
        _write_report(found, report)
    if as_json:
        import msgspec

        print_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        _print_ledger(found)
    if not found.balanced:
        raise typer.Exit(FAILED)


def _write_report(found: Audit, path: Path) -> None:
    from reknit.spark.pipeline.report import report_html

    path.write_text(report_html(found), encoding="utf-8")
    say(f"wrote {path}")


def _print_ledger(found: Audit) -> None:
    names = [
        "node",
        "subscriber",
        "topic",
        "published",
        "accepted",
        "dead_lettered",
        "lost",
        "in_flight",
        "retries",
    ]
    rows = [{name: getattr(row, name) for name in names} for row in found.rows]
    _print_rows(rows, names, "there is no durable subscriber, so nothing is owed")
    for problem in found.problems[:20]:
        where = f"{problem.subscriber}, {problem.topic}, {problem.source} [{problem.start}, {problem.stop})"
        say(f"problem: {where} {problem.problem}")
    if len(found.problems) > 20:
        say(f"… and {len(found.problems) - 20} more: see --json or --report")
    typer.echo("balanced" if found.balanced else "NOT balanced")


def losses(
    lake: Lake = LAKE,
    topic: Annotated[str, typer.Option("--topic", help="Only this topic.")] = "",
    limit: Limit = 1000,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List lost events by range: events that have seqs but are in no journal and no archive."""
    with reading(lake, master) as (spark, folder):
        from reknit.spark.stages.audit.lake import losses_lake

        rows = losses_lake(spark, folder, topic, limit)
    _show(rows, as_json, "nothing is lost")


def dead_letters(
    lake: Lake = LAKE,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="COLUMN,…",
            help="Group by some of reason, code, topic, subscriber, node, hour.",
        ),
    ] = "reason,topic,subscriber",
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help="Only dead letters that match this condition.")
    ] = "",
    limit: Limit = 1000,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by reason, code, topic, subscriber or time."""
    with reading(lake, master) as (spark, folder):
        from reknit.spark.stages.audit.lake import plain_row
        from reknit.spark.stages.dead_letters import GROUPS, dead_letters_by
        from reknit.spark.stages.redrive import select_letters

        names = _columns(by, GROUPS)
        found = dead_letters_by(select_letters(spark, folder, where), names).limit(limit)
        rows = [plain_row(row) for row in found.collect()]
    _show(rows, as_json, "there are no dead letters")


def latency(
    lake: Lake = LAKE,
    by: Annotated[
        str, typer.Option("--by", metavar="COLUMN,…", help="Group by some of node, subscriber, topic.")
    ] = "subscriber,topic",
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the time from publishing to acceptance: quantiles, in milliseconds."""
    with reading(lake, master) as (spark, folder):
        from reknit.spark.stages.audit.lake import latency_lake

        rows = latency_lake(spark, folder, _columns(by, ("node", "subscriber", "topic")))
    _show(rows, as_json, "nothing was accepted yet")


def _columns(text: str, known: Sequence[str]) -> list[str]:
    """The columns that option --by names."""
    from reknit.errors import LocalError

    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise LocalError(f"--by {unknown[0]!r} is not a known column; use some of {', '.join(known)}")
    return names


def _show(rows: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(rows)
    else:
        _print_rows(rows, list(rows[0]) if rows else [], nothing)


def _print_rows(rows: list[dict[str, Any]], names: list[str], nothing: str) -> None:
    if not rows:
        say(nothing)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        is_number = isinstance(rows[0][name], int | float)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    console = Console()
    Console(width=max(console.width, 160) if not console.is_terminal else None, highlight=False).print(table)


def _cell(value: Any) -> str:
    from rich.markup import escape

    from reknit.cli.output import plain

    if isinstance(value, bool | None):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int | float) else escape(plain(str(value)))
