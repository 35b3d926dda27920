"""`reknit pipeline redrive`, `compact` and `expire`: work on the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import fail, print_json, size
from reknit.cli.pipeline.spark import LAKE, LOCAL, Lake, Master, access, reading

if TYPE_CHECKING:
    from reknit.spark.lake.maintenance import MaintenanceReport
    from reknit.spark.stages.redrive import RedriveReport

Node = Annotated[
    str,
    typer.Option(
        "--node", metavar="URL", envvar="REKNIT_NODE", help="Where to publish.  [default: as configured]"
    ),
]
Where = Annotated[
    str,
    typer.Option("--where", metavar="SQL", help="Which dead letters, such as \"reason = 'egress_full'\"."),
]
Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="Publish at most this fast; 0: without a limit.")
]
Ttl = Annotated[
    int, typer.Option("--ttl", metavar="MS", min=0, help="Time to live of the new events; 0: for ever.")
]
Before = Annotated[
    str, typer.Option("--before", metavar="YYYY-MM-DD", help="Remove the days before this one.")
]
OlderThan = Annotated[
    int | None,
    typer.Option(
        "--older-than", metavar="DAYS", min=1, help="Remove days that are older (instead of --before)."
    ),
]
ExpiringTables = Annotated[
    list[str], typer.Option("--table", metavar="NAME", help="Only this table; can be repeated.")
]


def redrive(
    lake: Lake = LAKE,
    node: Node = "",
    where: Where = "",
    rate: Rate = "1000/s",
    ttl: Ttl = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be published.")] = False,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again on their own topics, each once, however often you run this."""
    from reknit.cli.running import node_url

    with reading(lake, master) as (spark, folder):
        from reknit.spark.sink.options import SinkOptions
        from reknit.spark.stages.redrive import parse_rate
        from reknit.spark.stages.redrive import redrive as publish

        token, ca_file = access()
        to = SinkOptions((node_url(node),), ttl_ms=ttl, token=token, tls_ca_file=ca_file)
        done = publish(spark, folder, to, where, parse_rate(rate), dry_run, _redrive_progress(as_json))
    if as_json:
        print_json(done)
    else:
        _say_redriven(done)


def _say_redriven(done: RedriveReport) -> None:
    for topic, count in done.topics.items():
        typer.echo(f"{topic}: {count:,}")
    verb = "would be published" if done.is_dry else "published"
    count = done.chosen if done.is_dry else done.published
    typer.echo(f"{count:,} dead letters {verb}, {done.already:,} had been before")


def _redrive_progress(is_quiet: bool) -> Any:
    if is_quiet or not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        typer.echo(f"\r{done:,} of {total:,}", err=True, nl=done >= total)

    return show


def compact(
    lake: Lake = LAKE,
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="SECONDS", min=0, help="How long replaced files stay for readers."),
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Merge small files into larger ones. Safe while the pipeline runs; needs no Spark."""
    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.lake.maintenance import compact as work

    _say_maintained(work(LakeFolder(lake), keep_s=keep), as_json)


def expire(
    lake: Lake = LAKE,
    before: Before = "",
    older_than: OlderThan = None,
    table: ExpiringTables = [],  # noqa: B006
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="SECONDS", min=0, help="How long removed files stay for readers."),
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Remove old days from the tables. Safe while the pipeline runs; needs no Spark."""
    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.lake.maintenance import expire as work
    from reknit.spark.lake.tables import TABLE_OF

    day = _first_day(before, older_than)
    if unknown := [name for name in table if name not in TABLE_OF or TABLE_OF[name].is_state]:
        fail(f"--table {unknown[0]!r} is not a table that can expire")
    _say_maintained(work(LakeFolder(lake), day, table, keep), as_json)


def _first_day(before: str, older_than: int | None) -> str:
    """The first day that stays."""
    import datetime as dt

    if older_than:
        return str(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=older_than))
    try:
        dt.date.fromisoformat(before)
    except ValueError:
        fail("name the days to remove: --before 2026-01-31, or --older-than 30")
    return before


def _say_maintained(done: MaintenanceReport, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    typer.echo(
        f"{done.files_before:,} files became {done.files_after:,}, {done.commits_folded:,} commits were folded, "
        f"{done.files_expired:,} files ({done.rows_expired:,} rows) expired, "
        f"{done.files_deleted:,} deleted ({size(done.bytes_deleted)})"
    )
