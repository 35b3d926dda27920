"""Builds a Spark session with the settings that reknit's source, sink and pipeline are tested with."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from reknit.spark.runtime.java import find_java

__all__ = ["SETTINGS", "build_session", "use_in_thread"]

log = logging.getLogger("reknit.spark")

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A stateful query stores this in its checkpoint: a later change has no effect there.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Otherwise timers in processing time keep a query with availableNow from ending.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Between Java and its Python workers: about 1.5 times as many rows per second as over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
}
"""Settings for every session."""

LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One driver on a local disk: this class forks less, and a small micro-batch takes two thirds of the time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
}
"""Settings for a session that runs in one process on this machine."""

ARROW_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark reads each value of a column once and in bounds, so Arrow need not check each access."""


def build_session(
    master: str = "local[*]",
    app: str = "reknit",
    settings: Mapping[str, Any] | None = None,
    memory: str = "2g",
    log_path: Path | None = None,
) -> SparkSession:
    """A new session, or the existing one. `settings` override ours.

    It finds Java (`JavaNotFound` says what to do if there is none), and Spark's workers run this Python. The log of
    Spark and its workers goes to `log_path`, by default a file in the folder for temporary files; errors are raised.
    """
    is_local = master.startswith("local")
    _prepare(is_local)
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName(app)
    for name, value in _all_settings(is_local, memory, settings or {}).items():
        builder = builder.config(name, str(value))
    with _stderr_to(log_path or Path(tempfile.gettempdir(), f"reknit-spark-{os.getpid()}.log")):
        session: SparkSession = builder.getOrCreate()
    # It is connected to Java, and would print a stack trace to the terminal if Java ends first.
    server = cast(Any, session.sparkContext)._accumulatorServer
    server.handle_error = lambda *_: log.debug("Spark's Java has ended", exc_info=True)
    return session


def use_in_thread(spark: SparkSession) -> None:
    """Make a session known to Spark in this thread, as it is in the thread that built it.

    `df.write.format("reknit").save()` needs it in every other thread: Spark finds no Python data source there.
    """
    jvm = cast(Any, spark.sparkContext)._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(cast(Any, spark)._jsparkSession)


def _all_settings(is_local: bool, memory: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {
        "spark.driver.memory": memory,
        **SETTINGS,
        **(LOCAL_SETTINGS if is_local else {}),
        **settings,
    }
    logging_to = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    _append(chosen, "spark.driver.extraJavaOptions", f"{ARROW_OPTIONS} {logging_to}")
    _append(chosen, "spark.executor.extraJavaOptions", ARROW_OPTIONS)
    return chosen


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes that start inside this block write stderr to a file: Java does so as long as it runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _append(settings: dict[str, Any], name: str, options: str) -> None:
    settings[name] = f"{settings.get(name, '')} {options}".strip()


def _prepare(is_local: bool) -> None:
    """Set the environment variables that Spark reads when it starts. Those that the user set stay."""
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # py4j logs errors that are raised anyway: a stack trace in the terminal would add nothing.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """False for the records that py4j writes to the root logger."""
    return Path(record.pathname).parent.name != "py4j"
