"""An LMDB environment: shared within a process, and growing on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final, TypeVar

import lmdb

from reknit.errors import JournalCorrupt, JournalError, JournalFull

MAP_BYTES: Final = 64 << 20
DATABASES_MAX: Final = 16

_DAMAGE: Final = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
)

T = TypeVar("T")


class Environment:
    """An LMDB environment. A process may open it only once, so its users share it."""

    open_ones: ClassVar[dict[Path, Environment]] = {}
    registry: ClassVar[Lock] = Lock()

    def __init__(self, path: Path, readonly: bool, map_bytes: int) -> None:
        self.path, self.readonly = path, readonly
        self.users = 0
        self.gate = Lock()
        """Held while a reading transaction is open, because the map must not grow then."""
        self.lmdb = self._open(map_bytes)

    def _open(self, map_bytes: int) -> Any:
        options: dict[str, Any] = {"max_dbs": DATABASES_MAX, "max_readers": 512}
        if not self.readonly:
            return lmdb.open(str(self.path), map_size=map_bytes, mode=0o600, **options)
        try:
            return lmdb.open(str(self.path), map_size=0, readonly=True, create=False, **options)
        except (lmdb.ReadonlyError, lmdb.LockError, lmdb.DiskError, PermissionError):
            # A read-only file system has no writer either, so no lock is needed.
            return lmdb.open(str(self.path), map_size=0, readonly=True, create=False, lock=False, **options)

    @classmethod
    def join(cls, directory: Path, readonly: bool, map_bytes: int) -> Environment:
        path = directory.resolve()
        with cls.registry:
            found = cls.open_ones.get(path)
            if found is None or (found.readonly and not readonly):
                try:
                    found = cls.open_ones[path] = cls(path, readonly, map_bytes)
                except lmdb.Error as error:
                    raise explained(error, path) from error
            found.users += 1
            return found

    def leave(self) -> None:
        with self.registry:
            self.users -= 1
            if not self.users:
                del self.open_ones[self.path]
                with self.gate:
                    self.lmdb.close()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A reading transaction: everything as of one moment."""
        with self.gate:
            try:
                txn = self.lmdb.begin()
            except lmdb.MapResizedError:
                self.lmdb.set_mapsize(0)  # another process made it larger
                txn = self.lmdb.begin()
            with txn:
                yield txn

    def write(self, act: Callable[[Any], T]) -> T:
        """Run a function in a synced transaction. If the map is full, enlarge it and run the function again."""
        self._grow_ahead()
        while True:
            try:
                with self.lmdb.begin(write=True) as txn:
                    return act(txn)
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise explained(error, self.path) from error

    def _grow_ahead(self) -> None:
        info = self.lmdb.info()
        if info["last_pgno"] * self.lmdb.stat()["psize"] * 2 > info["map_size"]:
            self._grow()

    def _grow(self) -> None:
        with self.gate:
            self.lmdb.set_mapsize(self.lmdb.info()["map_size"] * 2)


def explained(error: lmdb.Error, path: Path) -> JournalError:
    """LMDB's error as the journal's."""
    text = str(error)
    if isinstance(error, _DAMAGE):
        damage = JournalCorrupt(str(path / "data.mdb"), 0, f"the index can't be read ({text})")
        damage.do = f"rebuild it from the log with `reknit journal repair {path.parent}`"
        return damage
    kind = JournalFull if "No space left" in text or f"[Errno {errno.ENOSPC}]" in text else JournalError
    return kind(f"the index failed ({text})", str(path))
