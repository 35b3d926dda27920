"""Small files and folders that are complete and durable, or absent, after a power cut."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["sync_file", "sync_folder", "write_file"]


def write_file(path: Path, data: bytes) -> None:
    """Write a small file atomically and durably: after a power cut it is complete or absent."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Make the file names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some shared file systems refuse it, and do not need it
            os.fsync(fd)
    finally:
        os.close(fd)
