"""The pipeline: all stages on one lake, continuously or once, from wherever the last run ended.

Capture is two streaming queries (batches, outcomes). Settle, events and dead letters follow the tables' commit logs,
each with a log of its own: a stage that was killed goes on from its last commit. There is no other state.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reknit.errors import LocalError
from reknit.spark.lake.commit_log import Lake
from reknit.spark.lake.history import Archive
from reknit.spark.lake.spark_tables import check_format
from reknit.spark.pipeline.progress import Figures, Progress, lag
from reknit.spark.pipeline.progress_reporter import Telling
from reknit.spark.stages.capture import into_table
from reknit.spark.stages.dead_letters import DEAD_LETTER_TOPIC, dead_letters_lake
from reknit.spark.stages.settle_events import events_lake
from reknit.spark.stages.settle_recover import Cache, NodeCache
from reknit.spark.stages.settle_run import FOREVER_S, settle_lake

log = logging.getLogger("reknit.spark")

__all__ = ["Pipeline", "PipelineFailed", "Settings"]

POLL_S: Final = 0.1
GRACE_S: Final = 60.0
LATE_WORKER: Final = "Python worker failed to connect back"
"""Spark gives a worker ten seconds for its start, and has no setting for it."""
SLOW_STARTS_MAX: Final = 5


class PipelineFailed(LocalError):
    """A stage could not go on. What was committed stays; the next run goes on from there."""

    def __init__(self, stage: str, why: str) -> None:
        super().__init__(stage, why)
        self.stage, self.why = stage, why

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.why}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run it."""

    nodes: tuple[str, ...]
    topics: str = ""
    is_once: bool = False
    grace_s: float | None = None
    """How long a gap may wait to be filled; by default a minute, and not at all in a run that ends by itself."""
    interval_s: float = 2.0
    """How often the stages behind capture run."""
    events: bool = True
    """Write table `events` too."""
    format: str = "parquet"
    dead_letter_topic: str = DEAD_LETTER_TOPIC
    bytes_per_trigger: int = 256 << 20
    fail_on_data_loss: bool = True
    archives: tuple[str, ...] = ()
    """Other lakes that are asked for what is missing."""
    token: str = ""
    """What is shown to the nodes."""
    tls_ca_file: str = ""
    """Certificates to trust for nodes at `tls://`; empty: the system's."""


class Pipeline:
    """All stages. `run` returns when everything there is was processed (`is_once`), or after `stop`."""

    def __init__(self, spark: SparkSession, lake: Lake, settings: Settings) -> None:
        self.spark, self.lake, self.settings = spark, lake, settings
        self.progress = Progress()
        self._stop = threading.Event()
        self._live = [url for url in settings.nodes if "://" in url and not url.startswith("file://")]
        self._caches: list[tuple[str, Cache]] = [
            (url, NodeCache(url, settings.token, settings.tls_ca_file)) for url in self._live
        ]
        self._caches += [(f"archive {root}", Archive(root)) for root in settings.archives]

    def stop(self) -> None:
        """End soon, at a place to go on from. Safe in a signal handler."""
        self._stop.set()

    def run(self) -> Figures:
        """Run the stages. Raises `PipelineFailed`."""
        check_format(self.spark, self.settings.format)
        how = (self.settings.token, self.settings.tls_ca_file)
        telling = Telling(self.progress, self.lake.id, str(self.lake.root), self._live, *how)
        with self.lake.locked(), telling:
            try:
                self._run_through_slow_starts()
            except BaseException as error:
                # Who stops a whole group of processes stops Java too: what was committed stays, as after a kill.
                if not (self._stop.is_set() and has_ended(self.spark)):
                    stage = self.progress.figures.stage
                    self._at("failed")
                    if isinstance(error, PySparkException):
                        raise PipelineFailed(stage, plain_error(error)) from None
                    raise
            self._at("done" if self.settings.is_once else "stopped")
        return self.progress.figures

    def _run_through_slow_starts(self) -> None:
        """Where the machine is so busy that a worker of Spark's was late, go on from where that was."""
        for _ in range(SLOW_STARTS_MAX):
            try:
                return self._run()
            except (PySparkException, PipelineFailed) as error:
                if LATE_WORKER not in str(error) or self._stop.is_set():
                    raise
                log.warning(
                    "stage %s: a worker did not start in time, trying again", self.progress.figures.stage
                )
        return self._run()

    def _run(self) -> None:
        queries: dict[str, StreamingQuery] = {}
        try:
            for table in ("batches", "outcomes"):
                self._at(f"capture {table}")
                queries[table] = self._capture(table)
            self._follow(queries)
        finally:
            for query in queries.values():
                _stop(query)
            for _, cache in self._caches:
                if isinstance(cache, NodeCache):
                    cache.close()

    def _capture(self, table: str) -> StreamingQuery:
        settings = self.settings
        reader = self.spark.readStream.format("reknit").option("rows", table)
        options = {
            "nodes": ",".join(settings.nodes),
            "topics": settings.topics,
            "token": settings.token,
            "tlsCaFile": settings.tls_ca_file,
            "maxBytesPerTrigger": str(settings.bytes_per_trigger),
            "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
        }
        for name, value in options.items():
            if value:
                reader = reader.option(name, value)
        checkpoint = self.lake.root / "_checkpoints" / table
        write = into_table(self.lake, table, checkpoint, self._captured)
        writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"capture {table} {self.lake.id}")
        if settings.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="1 second").start()

    def _captured(self, table: str, batch_id: int, rows: int) -> None:
        self.progress.add(**{table: rows}, commits=1)

    def _follow(self, queries: dict[str, StreamingQuery]) -> None:
        """Run the later stages while capture goes on, and once more after it ended."""
        settings = self.settings
        grace_s = settings.grace_s if settings.grace_s is not None else GRACE_S
        while not self._stop.is_set():
            is_over = settings.is_once and not any(query.isActive for query in queries.values())
            self._check(queries)
            if is_over:
                # Everyone who is there was read to the end: only they themselves can still fill a gap.
                self._stages(settings.grace_s or 0.0)
                self._look(queries)
                return
            self._stages(FOREVER_S if settings.is_once else grace_s)
            self._look(queries)
            self._wait(queries)
        self._check(queries)

    def _wait(self, queries: dict[str, StreamingQuery]) -> None:
        """Until the next turn; shorter where a run that ends by itself has nothing left to capture."""
        until = time.monotonic() + self.settings.interval_s
        while time.monotonic() < until and not self._stop.wait(POLL_S):
            if self.settings.is_once and not any(query.isActive for query in queries.values()):
                return

    def _check(self, queries: dict[str, StreamingQuery]) -> None:
        for table, query in queries.items():
            error = query.exception()
            if error is not None:
                raise PipelineFailed(f"capture {table}", plain_error(error)) from None
            if not query.isActive and not self.settings.is_once and not self._stop.is_set():
                raise PipelineFailed(f"capture {table}", "it ended without saying why")

    def _look(self, queries: dict[str, StreamingQuery]) -> None:
        behind, away = lag(queries["batches"].lastProgress)
        self.progress.put(lag_bytes=behind, away=away, stage="running")

    def _stages(self, grace_s: float) -> None:
        """Settle, events, dead letters: as far as capture has got."""
        self._at("settle")
        report = settle_lake(self.spark, self.lake, grace_s, self._caches)
        if report is not None:
            names = ("settled", "lost", "late", "recovered", "duplicates")
            self.progress.add(**{name: getattr(report, name) for name in names})
            self.progress.put(held=report.held, gaps=report.gap)
        if self.settings.events and not self._stop.is_set():
            self._at("events")
            self.progress.add(events=events_lake(self.spark, self.lake, self.settings.format) or 0)
        if not self._stop.is_set():
            self._at("dead letters")
            added = dead_letters_lake(self.spark, self.lake, self.settings.dead_letter_topic)
            self.progress.add(dead_letters=added or 0)

    def _at(self, stage: str) -> None:
        self.progress.put(stage=stage)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception:  # the Java side may be gone already: there is nothing left to stop
        return


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark was stopped, or its Java is gone."""
    try:
        return bool(cast(Any, spark.sparkContext)._jsc.sc().isStopped())
    except Exception:  # nobody is there to answer
        return True


_OURS: Final = re.compile(r"(?:reknit\.[\w.]+): (.+)")


def plain_error(error: Any) -> str:
    """What went wrong, in a line: our own words where they are in there, or Spark's first ones.

    >>> plain_error(ValueError("Job aborted\\nreknit.errors.Gone: gone: it was removed\\n  at java"))
    'gone: it was removed'
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
