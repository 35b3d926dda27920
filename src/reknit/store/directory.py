"""A journal's directory: who may write it, and how far others may read.

journal.json    format and id
lock            locked by the process that writes; its pid
end             the end of the log, shared through memory with reading processes
log/            segment files
index/          LMDB
aside/          bytes that were cut off or found damaged
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final
from uuid import uuid4

import msgspec

from reknit.errors import JournalError, JournalLocked
from reknit.store.log import sync_directory

FORMAT: Final = 1
_END_BYTES: Final = 4096
_PROOF: Final = 0x52454B4E49540001
_READS: Final = 1000
_TRIES: Final = 5
_TRY_S: Final = 0.01


class Label(msgspec.Struct, frozen=True):
    """What `journal.json` says."""

    format: int
    id: str


class Layout:
    """The paths in a journal's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.label, self.lock, self.end = root / "journal.json", root / "lock", root / "end"
        self.log, self.index, self.aside = root / "log", root / "index", root / "aside"

    def create(self) -> Label:
        """Make what is missing; gives the label. Whoever does this has the lock."""
        for directory in (self.root, self.log, self.index, self.aside):
            directory.mkdir(parents=True, exist_ok=True)
        if not self.label.exists():
            draft = self.label.with_suffix(".new")
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(Label(FORMAT, uuid4().hex)))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.label)
            sync_directory(self.root)
        return self.read_label()

    def read_label(self) -> Label:
        """Format and id. Raises `JournalError` where there is no journal, or a newer one."""
        try:
            label = msgspec.json.decode(self.label.read_bytes(), type=Label)
        except FileNotFoundError:
            raise JournalError("there is no journal", str(self.root)) from None
        except msgspec.DecodeError as error:
            raise JournalError(f"the label can't be read: {error}", str(self.label)) from None
        if label.format != FORMAT:
            raise JournalError(f"format {label.format}, but this reknit reads {FORMAT}", str(self.label))
        return label


class DirectoryLock:
    """Exclusive while it is open; goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not self._acquired():
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            error = JournalLocked(str(path.parent))
            error.what = f"in use by process {holder}" if holder else error.what
            raise error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _acquired(self) -> bool:
        """A reader that asks whether we are there holds the lock for microseconds: try more than once."""
        for _ in range(_TRIES):
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            sleep(_TRY_S)
        return False

    def release(self) -> None:
        os.close(self._fd)


def is_locked(path: Path) -> bool:
    """True if a process writes the journal."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class SharedEnd:
    """Two positions in a page that all processes share: the log's end, and how much of it was synced.

    Written without a sync: after a power cut they may be behind, never ahead.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            if writable and os.fstat(fd).st_size < _END_BYTES:
                os.pwrite(fd, bytes(_END_BYTES), 0)  # a hole could not be filled on a full disk
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, _END_BYTES, access=access)
        finally:
            os.close(fd)
        self._cells = memoryview(self._map)[:24].cast("Q")

    def share(self, end: int, synced: int) -> None:
        cells = self._cells
        cells[0], cells[1], cells[2] = end, synced, end ^ synced ^ _PROOF

    def read(self) -> tuple[int, int]:
        """The end of what may be read, and of what was synced; (0, 0) if the page makes no sense."""
        for _ in range(_READS):  # it may be written at this very moment
            end, synced, proof = self._cells
            if proof == end ^ synced ^ _PROOF and synced <= end:
                return end, synced
        return 0, 0

    def close(self) -> None:
        self._cells.release()
        self._map.close()


def shared_end(path: Path) -> int:
    """The end that was shared last; 0 if there is none."""
    try:
        shared = SharedEnd(path, writable=False)
    except (OSError, ValueError):
        return 0
    end = shared.read()[0]
    shared.close()
    return end
