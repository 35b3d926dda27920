"""Carries out `reknit pipeline run`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import typer

from reknit.cli.output import INTERRUPTED, print_json, say
from reknit.cli.pipeline.options import LakeRoot, RunOptions, SparkOptions
from reknit.cli.pipeline.spark_session import access, spark_session
from reknit.cli.running import WAIT_S, node_url
from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.nodes import is_up_to_date
from reknit.spark.pipeline.pipeline import CHECKPOINTS, Pipeline, PipelineFailed, PipelineSettings
from reknit.spark.pipeline.progress import Figures, ProgressScreen
from reknit.spark.stages.capture import check_checkpoint


def run_pipeline(lake: LakeRoot, options: RunOptions, on: SparkOptions, as_json: bool) -> None:
    """Run the pipeline until it is done or a signal stops it, and print its figures."""
    settings = _settings(options)
    signals = StopSignals()
    try:
        # Nodes, archives and the lock come first: Spark takes long to start.
        opened, ends = _open(lake, options.work, settings)
        with opened.locked() as folder:
            if settings.is_once and is_up_to_date(folder, ends, settings.events):
                _print(Figures(stage="done"), lake, as_json)
                return
            _run(folder, lake, settings, on, signals, as_json)
    except StoppedEarly:
        say("stopped before Spark had started: nothing was captured, and nothing is lost")
    except PipelineFailed as failed:
        raise PipelineFailed(failed.stage, in_words_of_the_command(failed.why)) from None
    if signals.seen:
        raise typer.Exit(INTERRUPTED if settings.is_once else 0)


def _run(
    folder: Lake,
    lake: LakeRoot,
    settings: PipelineSettings,
    on: SparkOptions,
    signals: StopSignals,
    as_json: bool,
) -> None:
    with spark_session(on) as spark:
        pipeline = Pipeline(spark, folder, settings)
        signals.pass_to(pipeline.stop)
        with ProgressScreen(pipeline.progress, is_quiet=as_json):
            figures = pipeline.run()
        _print(figures, lake, as_json)


def _print(figures: Figures, lake: LakeRoot, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    else:
        _print_figures(figures, lake)


def _open(lake: LakeRoot, work: Path | None, settings: PipelineSettings) -> tuple[Lake, dict[str, int]]:
    """The lake, which is created only if the nodes let the pipeline in; and how far their journals reach."""
    for root in settings.archives:
        Lake(root)
    with closing(settings.pipeline_nodes()) as nodes:
        if settings.needs_all_nodes:
            nodes.require(WAIT_S)
        else:
            nodes.ask()
        for why in nodes.away.values():
            say(f"{why}; its events stay there until it is back")
    opened = Lake.create(lake, work)
    for table in ("batches", "outcomes"):
        check_checkpoint(opened, table, opened.root / CHECKPOINTS / table)
    return opened, nodes.ends


def _settings(options: RunOptions) -> PipelineSettings:
    token, tls = access()
    return PipelineSettings(
        nodes=tuple(node_url(url.strip()) for url in options.nodes.split(",")),
        topics=options.topics,
        is_once=options.once,
        grace_s=options.grace,
        interval_s=options.interval,
        events=options.events,
        dead_letter_topics=tuple(options.dead_letter_topic),
        allow_missing=options.allow_missing,
        fail_on_data_loss=options.data_loss == "fail",
        archives=tuple(options.archive),
        lineage=options.lineage,
        token=token,
        tls=tls,
    )


_WORDS: Final = {
    "set failOnDataLoss=false to": "run with --data-loss go-on to",
    "(failOnNodeAway)": "(--allow-missing processes the others alone)",
}


def in_words_of_the_command(text: str) -> str:
    """An error of the source, with the options of this command instead of the source's.

    >>> in_words_of_the_command("it was removed; set failOnDataLoss=false to continue without it")
    'it was removed; run with --data-loss go-on to continue without it'
    """
    for words, own in _WORDS.items():
        text = text.replace(words, own)
    return text


def _print_figures(figures: Figures, lake: LakeRoot) -> None:
    typer.echo(
        f"{figures.settled:,} events settled from {figures.batches:,} batch{'es' * (figures.batches != 1)} into {lake}: "
        f"{figures.lost:,} lost, {figures.late:,} late, {figures.held:,} held, "
        f"{figures.dead_letters:,} dead letters, {figures.outcomes:,} outcome rows"
    )


class StoppedEarly(BaseException):
    """A signal came while Spark was starting. No handler of errors on the way may catch it."""


class StopSignals:
    """Stops the pipeline between two commits on Ctrl-C or SIGTERM; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.seen = False
        self._stop: Callable[[], None] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def pass_to(self, stop: Callable[[], None]) -> None:
        """From now on there is something to stop."""
        self._stop = stop

    def _handle(self, number: int, frame: object) -> None:
        if self.seen:
            os._exit(INTERRUPTED)
        self.seen = True
        if self._stop is None:
            raise StoppedEarly
        say("stopping after the current commit (repeat to stop at once; nothing is lost either way)")
        self._stop()
