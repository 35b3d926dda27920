"""A Spark session for one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from reknit.cli.output import fail
from reknit.cli.pipeline.options import LakeRoot, SparkOptions
from reknit.config import load
from reknit.errors import ReknitError
from reknit.spark.lake.commits import LakeError
from reknit.spark.lake.lake import Lake
from reknit.spark.runtime.session import build_session
from reknit.transport.tls import TlsFiles, client_files
from reknit.trust.own_token import own_token


def access() -> tuple[str, TlsFiles]:
    """The token for nodes, the certificates to trust, and the one to show, as configured."""
    config = load()
    return own_token(config.security), client_files(config)


@contextmanager
def open_lake(lake: LakeRoot, on: SparkOptions) -> Iterator[tuple[SparkSession, Lake]]:
    """A session, and the lake. The lake is opened first, since Spark takes long to start."""
    folder = Lake(lake)
    # After a crash, what is left of a commit is carried out here, unless a pipeline runs and does it itself.
    with suppress(LakeError), folder.locked():
        folder.redo()
    with spark_session(on) as spark:
        yield spark, folder


@contextmanager
def spark_session(on: SparkOptions) -> Iterator[SparkSession]:
    """A Spark session for one command. Its log stays out of the terminal."""
    settings = _settings(on.conf)
    with _no_stderr():
        try:
            spark = build_session(on.master, "reknit pipeline", settings, on.memory)
        except ReknitError:
            raise
        except Exception as error:  # Spark raises many types here; the user gets one line
            fail(f"Spark can't be started at {on.master}: {str(error).strip().splitlines()[0]}")
    try:
        yield spark
    finally:
        with suppress(Exception):  # the signal that stopped us may have stopped Java too
            spark.stop()


def _settings(conf: Sequence[str]) -> dict[str, str]:
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
