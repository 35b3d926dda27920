"""The values of a lake: its files, and the commits that add them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from reknit.errors import LocalError
from reknit.spark.lake.tables import MANY_TOPICS

__all__ = ["FOLDED", "Commit", "LakeError", "LakeFile", "added_by", "cannot_write", "commit_of_name"]

FOLDED: Final = -1
"""Stands for the commit of a file that compaction made: its rows came with commits that every stage has processed."""
_NAME: Final = re.compile(r"[a-z_]+-(\d+)-")


class LakeError(LocalError):
    """A lake is missing, damaged, in use, or of another format.

    >>> print(LakeError("./lake", "there is no lake", "run the pipeline first"))
    ./lake: there is no lake; run the pipeline first
    """

    def __init__(self, where: str, what: str, do: str) -> None:
        super().__init__(where, what, do)
        self.where, self.what, self.do = where, what, do

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.do}"


def cannot_write(where: str, error: OSError) -> LakeError:
    """The error of a lake that can't be written.

    >>> print(cannot_write("./lake", OSError(errno.ENOSPC, "No space left on device")))
    ./lake: can't be written (No space left on device); free some space and run it again: it resumes where it left off
    """
    do = "use a folder that can be written"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        do = "free some space and run it again: it resumes where it left off"
    why = os.strerror(error.errno) if error.errno else str(error)
    return LakeError(where, f"can't be written ({why})", do)


class LakeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file of a table. `path` is relative to the lake."""

    table: str
    path: str
    rows: int
    bytes: int
    day: str = ""
    """The day of its rows, as 2026-01-31; empty if they have none."""
    topic_key: str = ""
    """The key of its topic, or `many`; in table `runs` the stage."""
    commit: int | None = None
    """The stage's commit that added it, or `FOLDED`; None in that commit itself."""
    events: int | None = None
    """The events that its rows stand for; None if it is not known."""
    stats: str = ""
    """Bounds of its columns, in Delta Lake's JSON."""

    def may_hold(self, topic_keys: Collection[str]) -> bool:
        """Whether a row may be on one of these topics."""
        return self.topic_key in topic_keys or self.topic_key == MANY_TOPICS


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit of a stage: the files that it adds to its tables, and what the stage notes about it."""

    stage: str
    id: int
    time_us: int
    files: list[LakeFile] = []
    meta: dict[str, Any] = {}

    def files_of(self, table: str) -> list[LakeFile]:
        """The files that it adds to a table."""
        return [msgspec.structs.replace(file, commit=self.id) for file in self.files if file.table == table]


def added_by(file: LakeFile) -> int:
    """The commit that added a file."""
    assert file.commit is not None, "the lake fills it in"
    return file.commit


def commit_of_name(path: str) -> int:
    """The commit that added a file, from its name.

    >>> commit_of_name("events/day=2026-01-31/topic_key=many/events-12-8a1b-77.parquet")
    12
    >>> commit_of_name("events/part-00000-aa.zstd.parquet") == FOLDED
    True
    """
    found = _NAME.match(PurePosixPath(path).name)
    return FOLDED if found is None or path.rsplit("/", 1)[-1].startswith("part-") else int(found[1])
