"""What the commands of `reknit pipeline` share: their options, and a Spark session for one command."""

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

Lake = Annotated[Path, typer.Option("--lake", metavar="DIR", help="The lake: the folder with the tables.")]
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
        help="The nodes whose journals to read.  [default: the configured node]",
    ),
]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory for Spark's driver.")]
Conf = Annotated[
    list[str],
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; can be repeated."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many rows.")]

LAKE = Path("lake")
LOCAL = "local[*]"


def access() -> tuple[str, str]:
    """The token for nodes, and the certificates to trust, as configured."""
    from reknit.config import load

    config = load()
    return config.security.token, config.transport.tls_ca_file


@contextmanager
def reading(
    lake: Path, master: str, memory: str = "2g", conf: list[str] | None = None
) -> Iterator[tuple[SparkSession, LakeFolder]]:
    """A session, and the lake. The lake is opened first, since Spark takes long to start."""
    from reknit.spark.lake.commit_log import Lake as LakeFolder

    folder = LakeFolder(lake)
    with spark_session(master, memory, conf or []) as spark:
        yield spark, folder


@contextmanager
def spark_session(master: str, memory: str, conf: list[str]) -> Iterator[SparkSession]:
    """A Spark session for one command. Its log stays out of the terminal."""
    try:
        from reknit.spark.data_source import ReknitDataSource
        from reknit.spark.runtime.session import build_session
    except ImportError as error:
        fail(f"the pipeline needs Spark ({error.name} is not installed): pip install 'reknit[spark]'")
    settings = _settings(conf)
    with _no_stderr():
        try:
            spark = build_session(master, "reknit pipeline", settings, memory)
        except Exception as error:  # Spark raises many types here; the user gets one line
            from reknit.errors import ReknitError

            if isinstance(error, ReknitError):
                raise
            fail(f"Spark can't be started at {master}: {str(error).strip().splitlines()[0]}")
    spark.dataSource.register(ReknitDataSource)
    try:
        yield spark
    finally:
        with suppress(Exception):  # the signal that stopped us may have stopped Java too
            spark.stop()


def _settings(conf: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in conf]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        fail(f"--conf {wrong[0]!r} is not of the form KEY=VALUE")
    return {key: value for key, _, value in pairs}


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Discard stderr: the launcher of Spark's Java writes to it before any of our settings apply."""
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
