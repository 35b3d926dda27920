"""`reknit pipeline run`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import INTERRUPTED, fail, print_json, say
from reknit.cli.pipeline.spark import LAKE, LOCAL, Conf, Lake, Master, Memory, Nodes, access, spark_session

Once = Annotated[bool, typer.Option("--once", help="Process everything there is, then stop.")]
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
    typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often captured batches are settled."),
]
Events = Annotated[
    bool, typer.Option("--events/--no-events", help="Write table `events`, a row an event, too.")
]
TableFormat = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="Of table `events`: parquet, delta or iceberg.")
]
Archives = Annotated[
    list[str], typer.Option("--archive", metavar="DIR", help="Another lake to ask for what is missing.")
]
DataLoss = Annotated[
    str,
    typer.Option("--data-loss", metavar="fail|go-on", help="When retention removed what was not read yet."),
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
    """Capture journals into the lake's tables, exactly once; Ctrl-C and start again at will.

    Stages: capture (batches, outcomes), settle (each event once and in order, gaps, losses), events, dead letters.
    """
    from reknit.cli.running import node_url
    from reknit.spark.lake.commit_log import Lake as LakeFolder
    from reknit.spark.pipeline.pipeline import Pipeline, Settings
    from reknit.spark.pipeline.progress import Screen

    if data_loss not in ("fail", "go-on"):
        fail(f"--data-loss {data_loss!r}: it is fail or go-on")
    urls = tuple(node_url(url.strip()) for url in nodes.split(",")) if nodes else (node_url(""),)
    for root in archive:
        LakeFolder(root)
    folder = LakeFolder.create(lake)
    token, ca_file = access()
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
    with spark_session(master, memory, conf) as spark:
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
        f"{figures.settled:,} events settled from {figures.batches:,} batch{'es' * (figures.batches != 1)} into {lake}: "
        f"{figures.lost:,} lost, {figures.late:,} late, {figures.held:,} held, "
        f"{figures.dead_letters:,} dead letters, {figures.outcomes:,} outcome rows"
    )


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
