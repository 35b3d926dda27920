"""The lock of a lake on a local disk. It ends with its process, however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reknit.spark.lake.commits import LakeError, cannot_write

__all__ = ["locked_file"]


@contextmanager
def locked_file(root: Path, name: str) -> Iterator[None]:
    """Lock a file of a lake. Raises `LakeError` if another process holds it, or the folder can't be written."""
    with _open(root, name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            do = "stop it, or use another lake"
            raise LakeError(str(root), "another process writes this lake", do) from None
        yield


def _open(root: Path, name: str) -> IO[str]:
    try:
        return open(root / name, "a+")
    except OSError as error:
        raise cannot_write(str(root), error) from None
