"""Carries out `reknit pipeline run`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import typer

from reknit.cli.output import INTERRUPTED, print_json, say
from reknit.cli.pipeline.options import RunOptions, SparkOptions
from reknit.cli.pipeline.spark_session import access, spark_session
from reknit.cli.running import node_url
from reknit.spark.lake.commit_log import Lake
from reknit.spark.pipeline.pipeline import Pipeline, PipelineSettings
from reknit.spark.pipeline.progress import Figures, ProgressScreen


def run_pipeline(lake: Path, options: RunOptions, on: SparkOptions, as_json: bool) -> None:
    """Run the pipeline until it is done or a signal stops it, and print its figures."""
    settings = _settings(options)
    for root in settings.archives:
        Lake(root)
    folder = Lake.create(lake)
    with spark_session(on) as spark:
        pipeline = Pipeline(spark, folder, settings)
        signals = _on_signal(pipeline.stop)
        with ProgressScreen(pipeline.progress, is_quiet=as_json):
            figures = pipeline.run()
        if as_json:
            print_json(figures)
        else:
            _print_figures(figures, lake)
    if signals:
        raise typer.Exit(INTERRUPTED if settings.is_once else 0)


def _settings(options: RunOptions) -> PipelineSettings:
    token, tls = access()
    return PipelineSettings(
        nodes=tuple(node_url(url.strip()) for url in options.nodes.split(",")),
        topics=options.topics,
        is_once=options.once,
        grace_s=options.grace,
        interval_s=options.interval,
        events=options.events,
        format=options.table_format,
        fail_on_data_loss=options.data_loss == "fail",
        archives=tuple(options.archive),
        token=token,
        tls=tls,
    )


def _print_figures(figures: Figures, lake: Path) -> None:
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
