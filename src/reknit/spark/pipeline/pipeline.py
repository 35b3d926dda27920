"""The pipeline: runs all stages on one lake, continuously or once, and resumes where the last run ended.

Capture is two streaming queries (batches, outcomes). Settle, events and dead letters read the commits of the stage
before, and each has its own: a stage that was killed resumes after its last commit. There is no other state.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reknit.errors import LocalError
from reknit.spark.lake.history import Archive
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.maintenance import prune_runs
from reknit.spark.lake.spark_tables import clear_unfinished
from reknit.spark.options import read_list
from reknit.spark.pipeline.lineage import told_lineage
from reknit.spark.pipeline.nodes import PipelineNodes
from reknit.spark.pipeline.progress import Figures, PipelineProgress, captured, lag
from reknit.spark.pipeline.progress_reporter import ProgressReporter
from reknit.spark.stages.capture import into_table
from reknit.spark.stages.dead_letters import DEAD_LETTER_TOPIC, dead_letters_lake, known_topics
from reknit.spark.stages.events import events_lake
from reknit.spark.stages.settle.recover import EventCache, NodeCache
from reknit.spark.stages.settle.run import FOREVER_S, settle_lake
from reknit.transport.tls import NO_FILES, TlsFiles

log = logging.getLogger("reknit.spark")

__all__ = ["CHECKPOINTS", "Pipeline", "PipelineFailed", "PipelineSettings"]

POLL_S: Final = 0.1
CHECKPOINTS: Final = "_checkpoints"
"""The folder in a lake with the checkpoints of capture."""
STAGES: Final = ("capture_batches", "capture_outcomes", "settle", "events", "dead_letters")
GRACE_S: Final = 60.0
LATE_WORKER: Final = "Python worker failed to connect back"
"""Spark allows a worker ten seconds to start, and has no setting for it."""
SLOW_STARTS_MAX: Final = 5


class PipelineFailed(LocalError):
    """A stage failed. Commits stay; the next run resumes after them."""

    def __init__(self, stage: str, why: str) -> None:
        super().__init__(stage, why)
        self.stage, self.why = stage, why

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.why}"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """How to run the pipeline."""

    nodes: tuple[str, ...]
    topics: str = ""
    is_once: bool = False
    grace_s: float | None = None
    """How long a gap may wait to be filled; by default a minute, and 0 with `is_once`."""
    interval_s: float = 2.0
    """How often the stages after capture run."""
    events: bool = True
    """Also write table `events`."""
    dead_letter_topics: tuple[str, ...] = ()
    """Topics of dead letters, beside those that the nodes name."""
    allow_missing: bool = False
    """With `is_once`, also run if a node can't be reached: its events are left to a later run."""
    bytes_per_trigger: int = 256 << 20
    fail_on_data_loss: bool = True
    """Fail if retention removed events before they were read."""
    archives: tuple[str, ...] = ()
    """Other lakes that are asked for missing events."""
    token: str = ""
    """The token for the nodes."""
    lineage: str = ""
    """Where to tell OpenLineage's events: the URL of a server, or a file."""
    tls: TlsFiles = NO_FILES
    """Certificates to trust for nodes at `tls://`; empty: those of the system."""

    def pipeline_nodes(self) -> PipelineNodes:
        """The nodes, to ask them about themselves."""
        topics = self.dead_letter_topics or (DEAD_LETTER_TOPIC,)
        return PipelineNodes(self.nodes, self.token, self.tls, topics)

    @property
    def needs_all_nodes(self) -> bool:
        """Whether a node that is away ends the run."""
        return self.is_once and not self.allow_missing


class Pipeline:
    """All stages on one lake. With `is_once`, `run` returns when everything was processed; otherwise after `stop`."""

    def __init__(self, spark: SparkSession, lake: Lake, settings: PipelineSettings) -> None:
        self.spark, self.lake, self.settings = spark, lake, settings
        self.progress = PipelineProgress()
        self._nodes = settings.pipeline_nodes()
        self._nodes.dead_letter_topics |= known_topics(lake)
        self._stop = threading.Event()
        self._live = [url for url in settings.nodes if "://" in url and not url.startswith("file://")]
        self._caches: list[tuple[str, EventCache]] = [
            (url, NodeCache(url, settings.token, settings.tls)) for url in self._live
        ]
        self._caches += [(f"archive {root}", Archive(root)) for root in settings.archives]

    def stop(self) -> None:
        """Stop soon, between two commits. Safe in a signal handler."""
        self._stop.set()

    def run(self) -> Figures:
        """Run the stages. Raises `PipelineFailed`."""
        settings = self.settings
        reporter = ProgressReporter(
            self.progress,
            self.lake.id,
            self.lake.storage.root,
            self._live,
            token=settings.token,
            tls=settings.tls,
        )
        lineage = told_lineage(settings.lineage, self.lake, settings.nodes)
        with self.lake.locked(), closing(self._nodes), reporter, lineage:
            self._ask_nodes()
            clear_unfinished(self.lake, STAGES)
            try:
                self._run_despite_slow_starts()
            except BaseException as error:
                # A signal to the whole process group stops Java too. Commits stay, as after a kill.
                if not (self._stop.is_set() and has_ended(self.spark)):
                    stage = self.progress.figures.stage
                    self._enter("failed")
                    if isinstance(error, PySparkException):
                        raise PipelineFailed(stage, plain_error(error)) from None
                    raise
            self._enter("done" if settings.is_once else "stopped")
        return self.progress.figures

    def _run_despite_slow_starts(self) -> None:
        """Run, and resume if the machine is so busy that one of Spark's workers started too late."""
        for _ in range(SLOW_STARTS_MAX):
            try:
                return self._run()
            except (PySparkException, PipelineFailed) as error:
                if LATE_WORKER not in str(error) or self._stop.is_set():
                    raise
                log.warning(
                    "stage %s: a Python worker did not start in time, retrying", self.progress.figures.stage
                )
        return self._run()

    def _run(self) -> None:
        queries: dict[str, StreamingQuery] = {}
        self.lake.redo(STAGES)
        try:
            for table in ("batches", "outcomes"):
                self._enter(f"capture {table}")
                queries[table] = self._capture(table)
            self._run_stages(queries)
        finally:
            for query in queries.values():
                _stop(query)
            for _, cache in self._caches:
                if isinstance(cache, NodeCache):
                    cache.close()

    def _ask_nodes(self) -> None:
        """Ask the nodes that have not answered yet for their dead-letter topics. Raises `NodesAway`."""
        if self.settings.needs_all_nodes:
            self._nodes.require()
            return
        self._nodes.ask()
        self.progress.put(away=list(self._nodes.away.values()))

    # -- capture

    def _capture(self, table: str) -> StreamingQuery:
        """Start the streaming query that captures a table."""
        reader = self.spark.readStream.format("reknit").option("rows", table)
        for name, value in self._source_options().items():
            if value:
                reader = reader.option(name, value)
        checkpoint = self.lake.root / CHECKPOINTS / table
        write = into_table(self.lake, table, checkpoint, self._count_captured)
        writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"capture {table} {self.lake.id}")
        if self.settings.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="1 second").start()

    def _source_options(self) -> dict[str, str]:
        settings = self.settings
        return {
            "nodes": ",".join(settings.nodes),
            "topics": self._topics(),
            "deadLetters": "true",
            "token": settings.token,
            "tlsCaFile": settings.tls.ca,
            "tlsCertFile": settings.tls.cert,
            "tlsKeyFile": settings.tls.key,
            "maxBytesPerTrigger": str(settings.bytes_per_trigger),
            "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
            "failOnNodeAway": str(settings.needs_all_nodes).lower(),
        }

    def _topics(self) -> str:
        """The topics to capture: with the wanted ones, dead letters are captured, too."""
        topics = self.settings.topics
        return ",".join([topics, *sorted(self._nodes.dead_letter_topics)]) if topics else ""

    def _count_captured(self, table: str, batch_id: int, rows: int) -> None:
        self.progress.add(**{table: rows}, commits=1)

    def _check(self, queries: dict[str, StreamingQuery]) -> None:
        for table, query in queries.items():
            error = query.exception()
            if error is not None:
                raise PipelineFailed(f"capture {table}", plain_error(error)) from None
            if not query.isActive and not self.settings.is_once and not self._stop.is_set():
                raise PipelineFailed(f"capture {table}", "it ended without an error message")

    # -- the stages after capture

    def _run_stages(self, queries: dict[str, StreamingQuery]) -> None:
        """Run the later stages while capture runs, and one last time after it ended."""
        settings = self.settings
        grace_s = settings.grace_s if settings.grace_s is not None else GRACE_S
        while not self._stop.is_set():
            is_over = self._is_captured(queries)
            self._check(queries)
            if is_over:
                # All reachable nodes were read to the end, so waiting any longer would not fill a gap.
                self._stages(settings.grace_s or 0.0)
                self._show_lag(queries)
                return
            self._stages(FOREVER_S if settings.is_once else grace_s)
            self._show_lag(queries)
            self._wait(queries)
        self._check(queries)

    def _is_captured(self, queries: dict[str, StreamingQuery]) -> bool:
        """True if a run with `is_once` has captured everything."""
        return self.settings.is_once and not any(query.isActive for query in queries.values())

    def _wait(self, queries: dict[str, StreamingQuery]) -> None:
        """Wait for the interval, or until everything is captured."""
        until = time.monotonic() + self.settings.interval_s
        while time.monotonic() < until and not self._stop.wait(POLL_S):
            if self._is_captured(queries):
                return

    def _show_lag(self, queries: dict[str, StreamingQuery]) -> None:
        progress = queries["batches"].lastProgress
        behind, away = lag(progress)
        if progress is None:
            away = list(self._nodes.away.values())
        positions = captured(progress)
        self.progress.put(lag_bytes=behind, away=away, positions=positions, stage="running")

    def _stages(self, grace_s: float) -> None:
        """Run settle, events and dead letters on everything captured so far."""
        self._enter("settle")
        self._settle(grace_s)
        if self.settings.events and not self._stop.is_set():
            self._enter("events")
            self.progress.add(events=events_lake(self.spark, self.lake) or 0)
        if not self._stop.is_set():
            self._enter("dead letters")
            self._nodes.ask()
            topics, patterns = self._nodes.dead_letter_topics, read_list(self.settings.topics)
            added = dead_letters_lake(self.spark, self.lake, topics, patterns)
            self.progress.add(dead_letters=added or 0)
        prune_runs(self.lake)

    def _settle(self, grace_s: float) -> None:
        """Settle what was captured; several times if there are more gaps than one run asks for."""
        unasked = 0
        while not self._stop.is_set():
            report = settle_lake(self.spark, self.lake, grace_s, self._caches)
            if report is None:
                return
            names = ("settled", "lost", "late", "recovered", "duplicates", "repeated")
            self.progress.add(**{name: getattr(report, name) for name in names})
            self.progress.put(held=report.held, gaps=report.gap)
            if not report.unasked or not (report.recovered or report.lost or report.unasked < unasked):
                return
            unasked = report.unasked

    def _enter(self, stage: str) -> None:
        self.progress.put(stage=stage)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception:  # Java may have ended already: then there is nothing to stop
        return


def has_ended(spark: SparkSession) -> bool:
    """True if Spark was stopped, or its Java has ended."""
    try:
        return bool(cast(Any, spark.sparkContext)._jsc.sc().isStopped())
    except Exception:  # Java does not answer any more
        return True


_OUR_ERROR: Final = re.compile(r"(?:reknit\.[\w.]+): (.+)")


def plain_error(error: Any) -> str:
    """An error in one line: the message of our own exception if there is one, or Spark's first line.

    >>> plain_error(ValueError("Job aborted\\nreknit.errors.Gone: gone: it was removed\\n  at java"))
    'gone: it was removed'
    """
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
