"""`reknit pipeline …`: the fabric's events in tables, on Spark, and the proof that none is missing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import FAILED, INTERRUPTED, fail, print_json, say, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reknit.spark.audit_run import Audit
    from reknit.spark.maintain import Upkeep
    from reknit.spark.tables_log import Lake as LakeFolder

app = typer.Typer(
    help="Bring events and outcomes into tables with Spark, and audit them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Lake = Annotated[Path, typer.Option("--lake", metavar="DIR", help="The folder with the tables.")]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[2], spark://host:7077 …"),
]
Nodes = Annotated[
    str,
    typer.Option(
        "--nodes",
        metavar="URL,…",
        envvar="REKNIT_NODES",
        help="The nodes whose journals are read.  [default: where the configuration says that one listens]",
    ),
]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of Spark's driver.")]
Conf = Annotated[
    list[str],
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's, handed on; may be repeated."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")]

LAKE = Path("lake")
LOCAL = "local[*]"


@app.command()
def run(
    lake: Lake = LAKE,
    nodes: Nodes = "",
    once: Annotated[bool, typer.Option("--once", help="Process everything there is, then stop.")] = False,
    topics: Annotated[str, typer.Option("--topics", metavar="PATTERN,…", help="Only these topics.")] = "",
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            help="How long a gap may wait to be filled.  [default: 60; with --once: 0]",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.1, help="How often captured batches are settled."
        ),
    ] = 2.0,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Write table `events`, a row an event, too.")
    ] = True,
    table_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Of table `events`: parquet, delta or iceberg.")
    ] = "parquet",
    archive: Annotated[
        list[str], typer.Option("--archive", metavar="DIR", help="Another lake to ask for what is missing.")
    ] = [],  # noqa: B006
    data_loss: Annotated[
        str,
        typer.Option(
            "--data-loss", metavar="fail|go-on", help="When retention removed what was not read yet."
        ),
    ] = "fail",
    master: Master = LOCAL,
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Capture journals into the lake's tables, exactly once; Ctrl-C and start again at will.

    Stages: capture (batches, outcomes), settle (each event once and in order, gaps, losses), events, dead letters.
    """
    from reknit.cli.running import node_url
    from reknit.spark.pipeline import Pipeline, Settings
    from reknit.spark.progress import Screen
    from reknit.spark.tables_log import Lake as LakeFolder

    if data_loss not in ("fail", "go-on"):
        fail(f"--data-loss {data_loss!r}: it is fail or go-on")
    urls = tuple(node_url(url.strip()) for url in nodes.split(",")) if nodes else (node_url(""),)
    for root in archive:
        LakeFolder(root)
    folder = LakeFolder.create(lake)
    token, ca_file = _access()
    settings = Settings(
        nodes=urls,
        topics=topics,
        is_once=once,
        grace_s=grace,
        interval_s=interval,
        events=events,
        format=table_format,
        fail_on_data_loss=data_loss == "fail",
        archives=tuple(archive),
        token=token,
        tls_ca_file=ca_file,
    )
    with _spark(master, memory, conf) as spark:
        pipeline = Pipeline(spark, folder, settings)
        signals = _on_signal(pipeline.stop)
        with Screen(pipeline.progress, is_quiet=as_json):
            figures = pipeline.run()
        if as_json:
            print_json(figures)
        else:
            _say_figures(figures, lake)
    if signals:
        raise typer.Exit(0 if not once else INTERRUPTED)


def _say_figures(figures: Any, lake: Path) -> None:
    typer.echo(
        f"{figures.settled:,} events settled from {figures.batches:,} batches into {lake}: "
        f"{figures.lost:,} lost, {figures.late:,} late, {figures.held:,} held, "
        f"{figures.dead_letters:,} dead letters, {figures.outcomes:,} outcome rows"
    )


@app.command()
def audit(
    lake: Lake = LAKE,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page with pictures.")
    ] = None,
    window: Annotated[
        int, typer.Option("--window", metavar="SECONDS", min=1, help="The ledger's windows of time.")
    ] = 3600,
    master: Master = LOCAL,
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Check the ledger: published = accepted + dead-lettered + lost + in flight. Exit code 1 if it does not balance."""
    with _reading(lake, master, memory, conf) as (spark, folder):
        from reknit.spark.audit_run import audit_lake

        found = audit_lake(spark, folder, window, is_full=report is not None or as_json)
    if report is not None:
        from reknit.spark.report import report_html

        report.write_text(report_html(found), encoding="utf-8")
        say(f"wrote {report}")
    if as_json:
        import msgspec

        print_json({"balanced": found.balanced, **msgspec.to_builtins(found)})
    else:
        _print_ledger(found)
    if not found.balanced:
        raise typer.Exit(FAILED)


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


@app.command()
def losses(
    lake: Lake = LAKE,
    topic: Annotated[str, typer.Option("--topic", help="Only this topic.")] = "",
    limit: Limit = 1000,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List what is missing: events that were numbered and that nobody has, by range."""
    with _reading(lake, master) as (spark, folder):
        from reknit.spark.audit_run import losses_lake

        rows = losses_lake(spark, folder, topic, limit)
    _show(rows, as_json, "nothing is lost")


@app.command("dead-letters")
def dead_letters(
    lake: Lake = LAKE,
    by: Annotated[
        str, typer.Option("--by", metavar="COLUMN,…", help="Of reason, code, topic, subscriber, node, hour.")
    ] = "reason,topic,subscriber",
    where: Annotated[str, typer.Option("--where", metavar="SQL", help="Only those that fit.")] = "",
    limit: Limit = 1000,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by reason, code, topic, subscriber or time."""
    from reknit.errors import LocalError

    with _reading(lake, master) as (spark, folder):
        from reknit.spark.audit_run import plain_row
        from reknit.spark.dead_letters import GROUPS, dead_letters_by
        from reknit.spark.redrive import fitting

        names = [name.strip() for name in by.split(",") if name.strip()]
        if unknown := [name for name in names if name not in GROUPS]:
            raise LocalError(f"--by {unknown[0]!r} is not known; use some of {', '.join(GROUPS)}")
        found = dead_letters_by(fitting(spark, folder, where), names).limit(limit)
        rows = [plain_row(row) for row in found.collect()]
    _show(rows, as_json, "there are no dead letters")


@app.command()
def latency(
    lake: Lake = LAKE,
    by: Annotated[
        str, typer.Option("--by", metavar="COLUMN,…", help="Of node, subscriber, topic.")
    ] = "subscriber,topic",
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show how long events took from publishing to acceptance: quantiles, in milliseconds."""
    from reknit.errors import LocalError

    with _reading(lake, master) as (spark, folder):
        from reknit.spark.audit_run import latency_lake

        names = [name.strip() for name in by.split(",") if name.strip()]
        if unknown := [name for name in names if name not in ("node", "subscriber", "topic")]:
            raise LocalError(f"--by {unknown[0]!r} is not known; use some of node, subscriber, topic")
        rows = latency_lake(spark, folder, names)
    _show(rows, as_json, "nothing was accepted yet")


@app.command()
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

    with _reading(lake, master) as (spark, folder):
        from reknit.spark.options import SinkOptions
        from reknit.spark.redrive import parse_rate
        from reknit.spark.redrive import redrive as publish

        token, ca_file = _access()
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


@app.command()
def compact(
    lake: Lake = LAKE,
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="SECONDS", min=0, help="How long replaced files stay for readers."),
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Put small files together. Safe while the pipeline runs; needs no Spark."""
    from reknit.spark.maintain import compact as work
    from reknit.spark.tables_log import Lake as LakeFolder

    _say_upkeep(work(LakeFolder(lake), keep_s=keep), as_json)


@app.command()
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

    from reknit.spark.maintain import expire as work
    from reknit.spark.tables import TABLE_OF
    from reknit.spark.tables_log import Lake as LakeFolder

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


# -- shared


def _access() -> tuple[str, str]:
    """The token to show to nodes, and the certificates to trust, as configured."""
    from reknit.config import load

    config = load()
    return config.security.token, config.transport.tls_ca_file


@contextmanager
def _reading(
    lake: Path, master: str, memory: str = "2g", conf: list[str] | None = None
) -> Iterator[tuple[SparkSession, LakeFolder]]:
    """A session, and the lake; the lake is looked at first, since Spark takes its time."""
    from reknit.spark.tables_log import Lake as LakeFolder

    folder = LakeFolder(lake)
    with _spark(master, memory, conf or []) as spark:
        yield spark, folder


@contextmanager
def _spark(master: str, memory: str, conf: list[str]) -> Iterator[SparkSession]:
    """Spark, for as long as a command runs; its noise stays out of the terminal."""
    try:
        from reknit.spark.session import build_session
        from reknit.spark.source import ReknitDataSource
    except ImportError as error:
        fail(f"the pipeline needs Spark ({error.name} is not installed): pip install 'reknit[spark]'")
    pairs = [text.partition("=") for text in conf]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        fail(f"--conf {wrong[0]!r} is not KEY=VALUE")
    with _stderr_aside():
        try:
            spark = build_session(master, "reknit pipeline", {key: value for key, _, value in pairs}, memory)
        except Exception as error:  # whatever Spark says when it can't start, it is one line for the user
            from reknit.errors import ReknitError

            if isinstance(error, ReknitError):
                raise
            fail(f"Spark can't be started at {master}: {str(error).strip().splitlines()[0]}")
    spark.dataSource.register(ReknitDataSource)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_aside() -> Iterator[None]:
    """The launcher of Spark's Java writes to the terminal before any of its settings hold."""
    sys.stderr.flush()
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _on_signal(stop: Any) -> list[int]:
    """Ctrl-C and SIGTERM end the pipeline between two commits; a second one ends it at once."""
    seen: list[int] = []

    def handle(number: int, frame: object) -> None:
        if seen:
            os._exit(INTERRUPTED)
        seen.append(number)
        say("stopping after what is under way (again to stop at once; nothing is lost either way)")
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return seen


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
