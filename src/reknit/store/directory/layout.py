"""A journal's directory: which process may write it, and how far others may read.

journal.json    format and id
lock            locked by the process that writes; its pid
end             the end of the log, shared through memory with reading processes
log/            segment files
index/          LMDB
aside/          damaged bytes that were cut off
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from time import sleep  # noqa: TID251 (for 10 ms, when another process looks at the lock)
from typing import Final

import msgspec

from reknit import environment
from reknit.decoding import UNREADABLE
from reknit.errors import JournalError, JournalLocked
from reknit.store.log.segment_files import sync_directory

FORMAT: Final = 1
_END_BYTES: Final = 4096
_PROOF: Final = 0x52454B4E49540001
_READS: Final = 1000
_LOCK_ATTEMPTS: Final = 5
_LOCK_RETRY_S: Final = 0.01


class JournalLabel(msgspec.Struct, frozen=True):
    """The content of `journal.json`."""

    format: int
    id: str
    origin: str = ""
    """The id of the journal whose backup this was restored from; empty if it never was."""


class Layout:
    """The paths in a journal's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.label, self.lock, self.end = root / "journal.json", root / "lock", root / "end"
        self.log, self.index, self.aside = root / "log", root / "index", root / "aside"

    def create(self) -> JournalLabel:
        """Create missing directories and the label; returns the label. The caller holds the lock."""
        for directory in (self.root, self.log, self.index, self.aside):
            directory.mkdir(parents=True, exist_ok=True)
        if not self.label.exists():
            draft = self.label.with_suffix(".new")
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(JournalLabel(FORMAT, environment.token_hex(16))))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.label)
            sync_directory(self.root)
        return self.read_label()

    def read_label(self) -> JournalLabel:
        """Format and id. Raises `JournalError` if there is no journal, or one of another format."""
        try:
            label = msgspec.json.decode(self.label.read_bytes(), type=JournalLabel)
        except FileNotFoundError:
            error = JournalError("there is no journal", str(self.root))
            error.do = "check the directory, or start a node there to create one"
            raise error from None
        except UNREADABLE as error:
            raise JournalError(f"the label can't be read ({error})", str(self.label)) from None
        if label.format != FORMAT:
            mismatch = JournalError(f"format {label.format} is not format {FORMAT}", str(self.label))
            mismatch.do = "open it with the version of reknit that wrote it"
            raise mismatch
        return label


class DirectoryLock:
    """Exclusive while it is open. The system releases it when the process ends, even in a crash."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._acquired():
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            error = JournalLocked(str(path.parent))
            error.what = f"in use by process {holder}" if holder else error.what
            raise error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _acquired(self) -> bool:
        """A reader that checks for a writer holds the lock for microseconds, so try more than once."""
        for _ in range(_LOCK_ATTEMPTS):
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            sleep(_LOCK_RETRY_S)
        return False

    def release(self) -> None:
        os.close(self._fd)


def is_locked(path: Path) -> bool:
    """True if a process has the journal open for writing."""
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

    They are written without a sync: after a power cut they may be behind, never ahead.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
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
        """The end that readers may see, and the synced end; (0, 0) if the page is not valid."""
        for _ in range(_READS):  # another process may be writing it at this moment
            end, synced, proof = self._cells
            if proof == end ^ synced ^ _PROOF and synced <= end:
                return end, synced
        return 0, 0

    def close(self) -> None:
        self._cells.release()
        self._map.close()


def shared_end(path: Path) -> int:
    """The last shared end; 0 if there is none."""
    try:
        shared = SharedEnd(path, writable=False)
    except (OSError, ValueError):
        return 0
    end = shared.read()[0]
    shared.close()
    return end
