"""The commit log: which files of a lake count. A commit is one file, written last, by an atomic rename.

    LAKE/lake.json                      format and id
    LAKE/_log/<stage>/<id>.json         what one commit of a stage wrote, in all its tables at once
    LAKE/_log/<stage>/<id>.folded.json  the same for all commits up to this id (made by compaction)
    LAKE/_lock                          locked by the pipeline that writes

Readers ignore a file that no commit names: a writer that died left it. A capture commit has the id of its
micro-batch, so a micro-batch that runs again after a crash finds its commit.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

import msgspec

from reknit.decoding import UNREADABLE
from reknit.errors import LocalError
from reknit.spark.lake.tables import FORMAT, MANY_TOPICS, TABLE_OF, TABLES

__all__ = ["Commit", "Lake", "LakeError", "LakeFile", "StageLog", "added_by"]

STAGES: Final = tuple(dict.fromkeys(table.stage for table in TABLES))
COMPACT: Final = "compact"


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


class LakeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file. `path` is relative to the lake."""

    table: str
    path: str
    rows: int
    bytes: int
    day: str = ""
    topic_key: str = ""
    commit: int | None = None
    """The commit that added it; None in that commit itself."""
    events: int | None = None
    """The events that its rows stand for; None in files of an older reknit."""

    def may_hold(self, topic_keys: Collection[str]) -> bool:
        """Whether a row may be on one of these topics."""
        return self.topic_key in topic_keys or self.topic_key == MANY_TOPICS


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit of a stage: the files that it adds, and what the stage notes about it."""

    stage: str
    id: int
    time_us: int
    files: list[LakeFile] = []
    removes: list[str] = []
    """Paths that no longer count: only compaction and expiry remove files."""
    meta: dict[str, Any] = {}


class LakeLabel(msgspec.Struct, frozen=True):
    """The content of `lake.json`."""

    format: int
    id: str


_decoder = msgspec.json.Decoder(Commit)


class StageLog:
    """The commits of one stage."""

    def __init__(self, root: Path, stage: str) -> None:
        self.stage = stage
        self.folder = root / "_log" / stage
        self._known: dict[str, Commit] = {}

    def commits(self) -> list[Commit]:
        """Every commit, oldest first; folded commits appear as one."""
        names = self._names()
        folded = max((name for name in names if name.endswith(".folded.json")), default="")
        wanted = [name for name in names if name[:20] > folded[:20] and not name.endswith(".folded.json")]
        return [self._read(name) for name in sorted([folded, *wanted] if folded else wanted)]

    def last(self) -> Commit | None:
        """The newest commit."""
        newest = max(self._names(), default="")
        return self._read(newest) if newest else None

    def has(self, id: int) -> bool:
        """True if this commit exists."""
        if (self.folder / f"{id:020d}.json").exists():
            return True
        return any(int(name[:20]) >= id for name in self._names() if name.endswith(".folded.json"))

    def add(self, commit: Commit) -> None:
        """Add a commit, whose files are already on disk. Raises `LakeError` if the id exists."""
        if self.has(commit.id):
            raise LakeError(
                str(self.folder), f"commit {commit.id} already exists", "run one pipeline per lake"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / f"{commit.id:020d}.json", msgspec.json.encode(commit))

    def fold(self, through: int, without: Collection[str] = ()) -> int:
        """Fold all commits up to this id into one file; returns how many. No stage may still need one of them alone.

        Files in `without` are gone for good: the log forgets them, and that they were removed.
        """
        old = [commit for commit in self.commits()[:-1] if commit.id <= through]
        if len(old) < 2 and not any(_names_one(commit, without) for commit in old):
            return 0
        last = old[-1]
        files = [
            file
            for commit in old
            for file in _with_commit(commit)
            if not TABLE_OF[file.table].is_state and file.path not in without
        ]
        removes = [path for commit in old for path in commit.removes if path not in without]
        folded = Commit(self.stage, last.id, last.time_us, files, removes, last.meta)
        write_file(self.folder / f"{last.id:020d}.folded.json", msgspec.json.encode(folded))
        self._known.pop(f"{last.id:020d}.folded.json", None)
        for name in self._names():
            is_folded = name.endswith(".folded.json")
            if int(name[:20]) < last.id or (int(name[:20]) == last.id and not is_folded):
                (self.folder / name).unlink(missing_ok=True)
                self._known.pop(name, None)
        return len(old)

    @property
    def size(self) -> int:
        """How many files the log has."""
        return len(self._names())

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.folder) if name.endswith(".json")]
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> Commit:
        commit = self._known.get(name)
        if commit is None:
            try:
                commit = _decoder.decode((self.folder / name).read_bytes())
            except FileNotFoundError:  # it was folded just now
                newest = max(n for n in self._names() if n.endswith(".folded.json"))
                return self._read(newest)
            except UNREADABLE as error:
                where = str(self.folder / name)
                raise LakeError(where, f"can't be read ({error})", "restore it from a copy") from None
            self._known[name] = commit
        return commit


class Lake:
    """A lake: its files, as its commits name them. Works without Spark.

    >>> import tempfile
    >>> lake = Lake.create(tempfile.mkdtemp())
    >>> lake.files("events")
    []
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        try:
            label = msgspec.json.decode((self.root / "lake.json").read_bytes(), type=LakeLabel)
        except FileNotFoundError:
            what = "there is no lake" if self.root.exists() else "there is no such folder"
            do = "use the folder that `reknit pipeline run --lake` wrote"
            raise LakeError(str(root), what, do) from None
        except (*UNREADABLE, NotADirectoryError) as error:
            raise LakeError(
                str(root), f"lake.json can't be read ({error})", "restore it from a copy"
            ) from None
        if label.format != FORMAT:
            do = f"read it with the reknit that wrote it, or start a new lake: this reknit reads format {FORMAT}"
            raise LakeError(str(root), f"it has format {label.format}", do)
        self.id = label.id
        self._held_locks: set[str] = set()
        self._logs = {stage: StageLog(self.root, stage) for stage in (*STAGES, COMPACT)}

    @classmethod
    def create(cls, root: str | Path) -> Lake:
        """The lake in a folder; creates it if it does not exist."""
        path = Path(root)
        if not (path / "lake.json").exists():
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                do = "use a folder that can be written"
                raise LakeError(str(root), f"can't be created ({error.strerror})", do) from None
            write_file(path / "lake.json", msgspec.json.encode(LakeLabel(FORMAT, uuid4().hex)))
        return cls(path)

    def log(self, stage: str) -> StageLog:
        return self._logs[stage]

    @contextmanager
    def locked(self, name: str = "_lock") -> Iterator[Lake]:
        """Lock the lake; the lock ends with the process. Raises `LakeError` if another process holds it.

        Whoever has locked this object may lock it again.
        """
        if name in self._held_locks:
            yield self
            return
        with self._open_lock(name) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                do = "stop it, or use another lake"
                raise LakeError(str(self.root), "another process writes this lake", do) from None
            self._held_locks.add(name)
            try:
                yield self
            finally:
                self._held_locks.discard(name)

    def _open_lock(self, name: str) -> IO[str]:
        try:
            return open(self.root / name, "a+")
        except OSError as error:
            do = "use a folder that can be written"
            raise LakeError(str(self.root), f"can't be written ({error.strerror})", do) from None

    def files(
        self,
        table: str,
        after: int | None = None,
        through: int | None = None,
        topic_keys: Iterable[str] | None = None,
    ) -> list[LakeFile]:
        """The files of a table that count.

        With `after` or `through`, only those of the commits `(after, through]`, which must not have been compacted.
        """
        about = TABLE_OF[table]
        if about.is_state:
            last = self.log(about.stage).last()
            return [] if last is None else [file for file in last.files if file.table == table]
        # What compaction removed is read first: it may forget a file that the stage's log forgot before.
        changes = self.log(COMPACT).commits()
        found = [file for file in self._added(about.stage) if file.table == table]
        if after is None and through is None:
            removed = {path for commit in changes for path in commit.removes}
            made = [f for commit in changes for f in commit.files if f.table == table]
            found += [msgspec.structs.replace(f, commit=f.commit or 0) for f in made]
            found = [file for file in found if file.path not in removed]
        found = [
            f
            for f in found
            if (after is None or added_by(f) > after) and (through is None or added_by(f) <= through)
        ]
        if topic_keys is not None:
            wanted = set(topic_keys)
            found = [file for file in found if file.may_hold(wanted)]
        return found

    def _added(self, stage: str) -> Iterator[LakeFile]:
        for commit in self.log(stage).commits():
            yield from _with_commit(commit)

    def paths(self, files: Iterable[LakeFile]) -> list[str]:
        return [str(self.root / file.path) for file in files]


def _names_one(commit: Commit, paths: Collection[str]) -> bool:
    return any(file.path in paths for file in commit.files) or any(path in paths for path in commit.removes)


def added_by(file: LakeFile) -> int:
    """The commit that added a file."""
    assert file.commit is not None, "the log fills it in"
    return file.commit


def _with_commit(commit: Commit) -> Iterator[LakeFile]:
    for file in commit.files:
        yield file if file.commit is not None else msgspec.structs.replace(file, commit=commit.id)


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
