"""A disk with faults: writes that were not synced may be lost or torn in a crash; it fills up, fails and stalls.

Files are real ones, in a folder of the simulation. The disk remembers what each write replaced until it is synced, and
puts that back when the power fails.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from reknit.environment import DiskFiles
from reknit.frame import Buffer

TORN_BYTES: Final = 512
"""A disk writes at least this much as a whole."""


class _Write(NamedTuple):
    """A write that is not synced, and what was there before."""

    offset: int
    size: int
    before: bytes


class _OpenFile:
    """The unsynced writes of a file. Its own descriptor outlasts the one of the program."""

    def __init__(self, fd: int) -> None:
        self.fd = os.dup(fd)
        self.writes: list[_Write] = []


def flip_byte(paths: Sequence[Path], rng: Random) -> str:
    """Change one byte of one of these files. Returns its name and the offset; nothing without one that has bytes."""
    paths = [path for path in paths if path.stat().st_size]
    if not paths:
        return ""
    path = rng.choice(paths)
    offset = rng.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ rng.randrange(1, 256)]))
    return f"{path.name} {offset}"


class VirtualDisk(DiskFiles):
    """The disk of one host."""

    def __init__(self, rng: Random, stall: Callable[[float], None]) -> None:
        self.is_full = False
        self.is_failing = False
        """Whether syncs fail."""
        self.stall_s_max = 0.0
        """How long a sync takes at most."""
        self._rng = rng
        self._stall = stall
        self._files: dict[tuple[int, int], _OpenFile] = {}
        self._is_interrupted = False

    def heal(self) -> None:
        """No faults any more."""
        self.is_full, self.is_failing, self.stall_s_max = False, False, 0.0

    def work_s(self) -> float:
        """How long the next piece of work beside the event loop takes."""
        return self._rng.uniform(0.0001, 0.001) + self._rng.uniform(0.0, self.stall_s_max)

    # -- as the program's files

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = sum(map(len, buffers))
        self._file(fd).writes.append(_Write(offset, size, os.pread(fd, size, offset)))
        return os.pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if self._is_interrupted or self.is_failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.stall_s_max:
            self._stall(self._rng.uniform(0.0, self.stall_s_max))
        self._forget(self._key(fd))

    def fallocate(self, fd: int, offset: int, size: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if os.fstat(fd).st_size < offset + size:
            os.ftruncate(fd, offset + size)  # as good, and faster

    # -- crashes

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Whatever is done now is not synced any more."""
        self._is_interrupted = True
        try:
            yield
        finally:
            self._is_interrupted = False

    def crash(self, is_power_lost: bool) -> None:
        """The host crashed. Without power, each write that was not synced is kept, lost or torn."""
        for key, file in list(self._files.items()):
            if is_power_lost:
                for write in reversed(file.writes):
                    self._maybe_lose(file.fd, write)
            self._forget(key)

    def _maybe_lose(self, fd: int, write: _Write) -> None:
        fate = self._rng.random()
        kept = 0 if fate < 0.5 else write.size if fate < 0.7 else self._rng.randrange(write.size + 1)
        kept -= kept % TORN_BYTES if kept != write.size else 0
        before = write.before.ljust(write.size, b"\0")
        if kept < write.size:
            os.pwrite(fd, before[kept:], write.offset + kept)

    def close(self) -> None:
        for key in list(self._files):
            self._forget(key)

    def _key(self, fd: int) -> tuple[int, int]:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino

    def _file(self, fd: int) -> _OpenFile:
        key = self._key(fd)
        found = self._files.get(key)
        if found is None:
            found = self._files[key] = _OpenFile(fd)
        return found

    def _forget(self, key: tuple[int, int]) -> None:
        file = self._files.pop(key, None)
        if file is not None:
            os.close(file.fd)
