"""`reknit pipeline redrive`, `compact` and `expire`: what is done with the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import fail, print_json, size
from reknit.cli.pipeline.spark import LAKE, LOCAL, Lake, Master, access, reading

if TYPE_CHECKING:
    from reknit.spark.lake.maintenance import Upkeep


def redrive(
    lake: Lake = LAKE,
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="URL", envvar="REKNIT_NODE", help="Where to publish.  [default: as configured]"
        ),
    ] = "",
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help="Which ones, as in \"reason = 'egress_full'\".")
    ] = "",
    rate: Annotated[
        str, typer.Option("--rate", metavar="N/s", help="At most so fast; 0: as fast as it goes.")
    ] = "1000/s",
    ttl: Annotated[
        int, typer.Option("--ttl", metavar="MS", min=0, help="The new events' time to live; 0: for ever.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be published.")] = False,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again on their own topics, each once, however often this is run."""
    from reknit.cli.running import node_url

    with reading(lake, master) as (spark, folder):
        from reknit.spark.source.options import SinkOptions
        from reknit.spark.stages.redrive import parse_rate
        from reknit.spark.stages.redrive import redrive as publish

        token, ca_file = access()
        to = SinkOptions((node_url(node),), ttl_ms=ttl, token=token, tls_ca_file=ca_file)
        done = publish(spark, folder, to, where, parse_rate(rate), dry_run, _redrive_progress(as_json))
    if as_json:
        print_json(done)
        return
    for topic, count in done.topics.items():
        typer.echo(f"{topic}: {count:,}")
    verb = "would be published" if dry_run else "published"
    count = done.chosen if dry_run else done.published
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
    """Put small files together. Safe while the pipeline runs; needs no Spark."""
    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.lake.maintenance import compact as work

    _say_upkeep(work(LakeFolder(lake), keep_s=keep), as_json)


def expire(
    lake: Lake = LAKE,
    before: Annotated[
        str, typer.Option("--before", metavar="YYYY-MM-DD", help="Days before this one go.")
    ] = "",
    older_than: Annotated[
        int,
        typer.Option(
            "--older-than", metavar="DAYS", min=1, help="Days that are older go (instead of --before)."
        ),
    ] = 0,
    table: Annotated[
        list[str], typer.Option("--table", metavar="NAME", help="Only this table; may be repeated.")
    ] = [],  # noqa: B006
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="SECONDS", min=0, help="How long removed files stay for readers."),
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Remove old days from the tables. Safe while the pipeline runs; needs no Spark."""
    import datetime as dt

    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.lake.maintenance import expire as work
    from reknit.spark.lake.tables import TABLE_OF

    if older_than:
        before = str(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=older_than))
    try:
        dt.date.fromisoformat(before)
    except ValueError:
        fail("say which days go: --before 2026-01-31, or --older-than 30")
    if unknown := [name for name in table if name not in TABLE_OF or TABLE_OF[name].is_state]:
        fail(f"--table {unknown[0]!r} is none that can expire")
    _say_upkeep(work(LakeFolder(lake), before, table, keep), as_json)


def _say_upkeep(done: Upkeep, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    typer.echo(
        f"{done.files_before:,} files became {done.files_after:,}, {done.commits_folded:,} commits were folded, "
        f"{done.files_expired:,} files ({done.rows_expired:,} rows) expired, "
        f"{done.files_deleted:,} deleted ({size(done.bytes_deleted)})"
    )
