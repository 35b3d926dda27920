"""`reknit pipeline run`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import INTERRUPTED, fail, print_json, say
from reknit.cli.pipeline.spark import LAKE, LOCAL, Conf, Lake, Master, Memory, Nodes, access, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.pipeline.pipeline import PipelineSettings
    from reknit.spark.pipeline.progress import Figures

Once = Annotated[bool, typer.Option("--once", help="Process everything that is there now, then stop.")]
Topics = Annotated[str, typer.Option("--topics", metavar="PATTERN,…", help="Only these topics.")]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        min=0,
        help="How long a gap may wait to be filled.  [default: 60; with --once: 0]",
    ),
]
Interval = Annotated[
    float,
    typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often to settle captured batches."),
]
Events = Annotated[
    bool, typer.Option("--events/--no-events", help="Also write table `events`, with one row per event.")
]
TableFormat = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="Format of table `events`: parquet, delta or iceberg."),
]
Archives = Annotated[
    list[str],
    typer.Option("--archive", metavar="DIR", help="Another lake to ask for missing events; can be repeated."),
]
DataLoss = Annotated[
    str,
    typer.Option(
        "--data-loss",
        metavar="fail|go-on",
        help="What to do if retention removed events before they were read.",
    ),
]


def run(
    lake: Lake = LAKE,
    nodes: Nodes = "",
    once: Once = False,
    topics: Topics = "",
    grace: Grace = None,
    interval: Interval = 2.0,
    events: Events = True,
    table_format: TableFormat = "parquet",
    archive: Archives = [],  # noqa: B006
    data_loss: DataLoss = "fail",
    master: Master = LOCAL,
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Capture journals into the lake's tables, exactly once. You can stop it with Ctrl-C and start it again.

    Stages: capture (batches, outcomes), settle (each event once and in order, gaps, losses), events, dead letters.
    """
    from reknit.cli.running import node_url
    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.pipeline.pipeline import PipelineSettings

    if data_loss not in ("fail", "go-on"):
        fail(f"--data-loss {data_loss!r} is not valid: use fail or go-on")
    urls = tuple(node_url(url.strip()) for url in nodes.split(",")) if nodes else (node_url(""),)
    for root in archive:
        LakeFolder(root)
    folder = LakeFolder.create(lake)
    token, ca_file = access()
    settings = PipelineSettings(
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
    with spark_session(master, memory, conf) as spark:
        figures, signals = _run(spark, folder, settings, is_quiet=as_json)
        if as_json:
            print_json(figures)
        else:
            _say_figures(figures, lake)
    if signals:
        raise typer.Exit(0 if not once else INTERRUPTED)


def _run(
    spark: SparkSession, lake: LakeFolder, settings: PipelineSettings, is_quiet: bool
) -> tuple[Figures, list[int]]:
    """Run the pipeline. Also returns a list of the signals that stop it, which later ones join."""
    from reknit.spark.pipeline.pipeline import Pipeline
    from reknit.spark.pipeline.progress import ProgressScreen

    pipeline = Pipeline(spark, lake, settings)
    signals = _on_signal(pipeline.stop)
    with ProgressScreen(pipeline.progress, is_quiet=is_quiet):
        figures = pipeline.run()
    return figures, signals


def _say_figures(figures: Figures, lake: Path) -> None:
    typer.echo(
        f"{figures.settled:,} events settled from {figures.batches:,} batch{'es' * (figures.batches != 1)} into {lake}: "
        f"{figures.lost:,} lost, {figures.late:,} late, {figures.held:,} held, "
        f"{figures.dead_letters:,} dead letters, {figures.outcomes:,} outcome rows"
    )


def _on_signal(stop: Callable[[], None]) -> list[int]:
    """Stop the pipeline between two commits on Ctrl-C or SIGTERM; a second signal ends it at once.

    Returns a list that will hold the signal.
    """
    seen: list[int] = []

    def handle(number: int, frame: object) -> None:
        if seen:
            os._exit(INTERRUPTED)
        seen.append(number)
        say("stopping after the current commit (repeat to stop at once; nothing is lost either way)")
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return seen
