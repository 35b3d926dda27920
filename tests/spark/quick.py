"""Makes Java start fast in tests: Spark's classes come from an archive that is made once per environment.

`python -m tests.spark.quick` makes it, as `make test` does. Tests also work without it, but each Java then takes about
five more seconds of processor time to start.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reknit.spark.runtime.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SRC: Final = Path(__file__).parents[2] / "src"
SITE: Final = Path(__file__).with_name("site")
HOME: Final = Path(sys.prefix, "quick-java").resolve()
END_S_MAX: Final = 120

# The serial collector, and one compiler instead of two: a test that runs for a minute does not profit from more.
OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xlog:disable"
SMALL_QUERIES: Final = {
    "spark.sql.adaptive.enabled": "false",  # plans a query again after each of its parts
    "spark.sql.codegen.wholeStage": "false",  # these two compile Java for a query, for millions of rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For queries of a few rows. The demo and Connect run with the settings that users have."""


def quick_environ() -> dict[str, str]:
    """Environment variables for a program that starts Spark in a test. Raises `JavaNotFound`."""
    paths = [str(SRC), str(SITE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    java = HOME if (HOME / "bin" / "java").exists() else find_java()
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths))), "JAVA_HOME": str(java)}


def make_home(home: Path) -> None:
    """Write a JAVA_HOME whose `java` has the options and the archive. Raises `JavaNotFound`."""
    java = find_java() / "bin" / "java"
    with tempfile.TemporaryDirectory(dir=home.parent) as name:
        draft = Path(name, "home")
        (draft / "bin").mkdir(parents=True)
        _write(draft / "bin" / "java", java, f"-XX:ArchiveClassesAtExit={draft / 'spark.jsa'}")
        os.environ["JAVA_HOME"] = str(draft)
        use_spark(Path(name))
        _write(draft / "bin" / "java", java, f"-XX:SharedArchiveFile={home / 'spark.jsa'}")
        shutil.rmtree(home, ignore_errors=True)
        draft.rename(home)


def _write(program: Path, java: Path, option: str) -> None:
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(java))} {OPTIONS} {shlex.quote(option)} "$@"\n')
    program.chmod(0o755)


def use_spark(folder: Path) -> None:
    """Use a little of everything, so that its classes are loaded; returns when Java has ended."""
    from reknit.spark.runtime.session import build_session

    spark = build_session("local[2]", "classes", {"spark.sql.warehouse.dir": folder.as_uri()}, memory="1g")
    spark.range(100).selectExpr("id % 7 AS key", "id").write.partitionBy("key").parquet(f"{folder}/rows")
    rows = spark.readStream.schema("id long, key int").parquet(f"{folder}/rows").writeStream
    rows = rows.foreachBatch(_look)
    rows = rows.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    rows.start().awaitTermination(END_S_MAX)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()
    process.wait(END_S_MAX)


def _look(frame: DataFrame, batch_id: int) -> None:
    frame.groupBy("key").count().collect()


if __name__ == "__main__":
    try:
        make_home(HOME)
    except Exception as error:  # tests also work without the archive
        print(f"no archive of Spark's classes was made: {error}")
