"""What the commands of `reknit pipeline` share: their options, and Spark for as long as one of them runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.output import fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reknit.spark.lake.commit_log import Lake as LakeFolder

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


def access() -> tuple[str, str]:
    """The token to show to nodes, and the certificates to trust, as configured."""
    from reknit.config import load

    config = load()
    return config.security.token, config.transport.tls_ca_file


@contextmanager
def reading(
    lake: Path, master: str, memory: str = "2g", conf: list[str] | None = None
) -> Iterator[tuple[SparkSession, LakeFolder]]:
    """A session, and the lake; the lake is looked at first, since Spark takes its time."""
    from reknit.spark.lake.commit_log import Lake as LakeFolder

    folder = LakeFolder(lake)
    with spark_session(master, memory, conf or []) as spark:
        yield spark, folder


@contextmanager
def spark_session(master: str, memory: str, conf: list[str]) -> Iterator[SparkSession]:
    """Spark, for as long as a command runs; its noise stays out of the terminal."""
    try:
        from reknit.spark.runtime.session import build_session
        from reknit.spark.source.data_source import ReknitDataSource
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
        with suppress(Exception):  # whoever stops us may have stopped its Java too
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
