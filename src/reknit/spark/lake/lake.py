"""A lake: a folder of Delta tables, and the commits that add to several of them at once.

    LAKE/lake.json                 format and id
    LAKE/<table>/_delta_log/       which files of the table count: Delta Lake's own log
    LAKE/runs/                     the commits of all stages (`runs.py`)
    LAKE/_lock                     locked by the pipeline that writes (in an object store: in the work folder)

A commit of a stage is recorded in table `runs`; then each table takes its part, in the order of `TABLES`, under the
commit's number. After a crash in between, `redo` carries out the rest: tables that have the number are left alone. A
capture commit has the id of its micro-batch, so a micro-batch that runs again after a crash finds its commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from reknit.decoding import UNREADABLE
from reknit.spark.lake.commits import Commit, LakeError, LakeFile, added_by, cannot_write
from reknit.spark.lake.delta import DeltaFiles
from reknit.spark.lake.locks import locked_file
from reknit.spark.lake.runs import RunTable
from reknit.spark.lake.storage import Storage
from reknit.spark.lake.tables import FORMAT, RUNS, TABLE_OF, TABLES, topic_key

__all__ = ["REDRIVEN", "STAGES", "Lake", "LakeLabel", "StageLog", "create_tables", "read_label"]

LABEL: Final = "lake.json"
REDRIVEN: Final = "redriven"
"""The stage that notes which redrives were published to the end. It has no table."""
STAGES: Final = (*dict.fromkeys(table.stage for table in TABLES), REDRIVEN)


class LakeLabel(msgspec.Struct, frozen=True):
    """The content of `lake.json`."""

    format: int
    id: str


class StageLog:
    """The commits of one stage."""

    def __init__(self, lake: Lake, stage: str) -> None:
        self.stage = stage
        self._lake = lake

    def commits(self) -> list[Commit]:
        """Every commit that may still be needed, oldest first."""
        return self._lake.runs.commits(self.stage)

    def last(self) -> Commit | None:
        """The newest commit."""
        return self._lake.runs.last(self.stage)

    def has(self, id: int) -> bool:
        """True if this commit exists. Numbers are given one after the other."""
        last = self.last()
        return last is not None and last.id >= id

    def add(self, commit: Commit) -> None:
        """Make a commit, whose files are already on disk. Raises `LakeError` if the id exists."""
        self._lake.commit(commit)


class Lake:
    """A lake: its files, as its commits name them. Works without Spark.

    >>> import tempfile
    >>> lake = Lake.create(tempfile.mkdtemp())
    >>> lake.files("events")
    []
    """

    def __init__(self, root: str | Path, work: str | Path | None = None) -> None:
        self.storage = Storage(root)
        self.root = work_folder(self.storage, work)
        """The folder on this machine for locks and checkpoints: the lake itself, unless it is in an object store."""
        label = read_label(self.storage, str(root))
        if label.format != FORMAT:
            do = f"read it with the reknit that wrote it, or start a new lake: this reknit reads format {FORMAT}"
            if label.format < FORMAT:
                do = f"bring it over with reknit pipeline migrate --lake {root}"
            raise LakeError(str(root), f"it has format {label.format}", do)
        self.id = label.id
        self.runs = RunTable(self.storage, self.id)
        self._held_locks: set[str] = set()
        self._tables = {table.name: DeltaFiles(self.storage, table) for table in TABLES}
        self._logs = {stage: StageLog(self, stage) for stage in STAGES}

    @classmethod
    def create(cls, root: str | Path, work: str | Path | None = None) -> Lake:
        """The lake in a folder, or at a URL in an object store; creates it if it does not exist."""
        storage = Storage(root)
        if not storage.size(LABEL):
            try:
                if storage.is_local:
                    Path(storage.root).mkdir(parents=True, exist_ok=True)
                create_tables(storage)
                storage.write(LABEL, msgspec.json.encode(LakeLabel(FORMAT, uuid4().hex)))
            except OSError as error:
                raise cannot_write(str(root), error) from None
        return cls(root, work)

    def log(self, stage: str) -> StageLog:
        return self._logs[stage]

    def table(self, name: str) -> DeltaFiles:
        return self._tables[name]

    # -- commits

    def commit(self, commit: Commit) -> None:
        """Record a commit, and carry it out. Raises `LakeError` if its stage has one of this id."""
        self.runs.add(commit)
        self._carry_out(commit)

    def redo(self, stages: Iterable[str] = STAGES) -> None:
        """Carry out what is left of the last commits of these stages, after a crash. Otherwise does nothing."""
        for stage in stages:
            last = self.log(stage).last()
            if last is not None:
                self._carry_out(last)

    def _carry_out(self, commit: Commit) -> None:
        """Add a commit's files to their tables, each under the commit's number: a table that has it stays as it is."""
        for table in TABLES:
            if table.stage != commit.stage:
                continue
            files, delta = commit.files_of(table.name), self._tables[table.name]
            if files or (table.is_state and delta.files()):
                delta.commit(f"{self.id}/{commit.stage}", commit.id, files, overwrites=table.is_state)

    # -- locks

    @contextmanager
    def locked(self, name: str = "_lock") -> Iterator[Lake]:
        """Lock the lake; the lock ends with the process. Raises `LakeError` if another process holds it.

        Whoever has locked this object may lock it again.
        """
        if name in self._held_locks:
            yield self
            return
        with locked_file(self.root, name):
            self._held_locks.add(name)
            try:
                yield self
            finally:
                self._held_locks.discard(name)

    # -- files

    def files(
        self,
        table: str,
        after: int | None = None,
        through: int | None = None,
        topic_keys: Iterable[str] | None = None,
    ) -> list[LakeFile]:
        """The files of a table that count.

        With `after` or `through`, those of the commits `(after, through]`, which must not have been pruned.
        """
        about = TABLE_OF[table]
        if about.is_state:
            last = self.log(about.stage).last()
            return [] if last is None else last.files_of(table)
        if after is None and through is None:
            found = self._tables[table].files()
        else:
            every = [file for commit in self.log(about.stage).commits() for file in commit.files_of(table)]
            found = [
                file
                for file in every
                if (after is None or added_by(file) > after)
                and (through is None or added_by(file) <= through)
            ]
        if topic_keys is not None:
            wanted = set(topic_keys)
            found = [file for file in found if file.may_hold(wanted)]
        return found

    def paths(self, files: Iterable[LakeFile]) -> list[str]:
        """Their full paths, or addresses."""
        return [self.storage.url(file.path) for file in files]


def work_folder(storage: Storage, work: str | Path | None) -> Path:
    """The folder for locks and checkpoints. For an object store it is made, by default among the user's own state."""
    if storage.is_local and work is None:
        return Path(storage.root)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    folder = Path(work or Path(state, "reknit/lakes", topic_key(storage.root))).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(str(folder), error) from None
    return folder


def read_label(storage: Storage, shown: str) -> LakeLabel:
    """The content of `lake.json`. Raises `LakeError` if there is none."""
    try:
        return msgspec.json.decode(storage.read(LABEL), type=LakeLabel)
    except FileNotFoundError:
        is_empty = not storage.is_local or Path(storage.root).exists()
        what = "there is no lake" if is_empty else "there is no such folder"
        raise LakeError(shown, what, "use the folder that `reknit pipeline run --lake` wrote") from None
    except (*UNREADABLE, NotADirectoryError) as error:
        raise LakeError(shown, f"lake.json can't be read ({error})", "restore it from a copy") from None


def create_tables(storage: Storage) -> None:
    """Make every table that is not there."""
    for table in (*TABLES, RUNS):
        DeltaFiles(storage, table).create()
