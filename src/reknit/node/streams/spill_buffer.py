"""Where a node keeps the bytes of streams that it may have to send again: in memory up to a cap, in files past it.

A file has no name, so that nothing is left behind however the node ends.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO


class Shelf:
    """Bytes `[start, stop)` of one stream: the first of them in memory, the others in a file if there is one."""

    def __init__(self) -> None:
        self.start = self.stop = 0
        self.memory = bytearray()
        self.file: IO[bytes] | None = None
        self.file_start = 0
        """The stream's offset at which the file begins."""

    @property
    def spilled_bytes(self) -> int:
        """How much of it is in the file."""
        return self.stop - max(self.file_start, self.start) if self.file is not None else 0

    def spill(self, data: bytes, folder: Path | None) -> None:
        """Put bytes behind the others, into the file. Raises `OSError`."""
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed with the shelf
            self.file_start = self.stop
        at, rest = self.stop - self.file_start, memoryview(data)
        while rest:
            written = os.pwrite(self.file.fileno(), rest, at)
            at, rest = at + written, rest[written:]
        self.stop += len(data)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)`. Raises `OSError`."""
        assert self.start <= start <= stop <= self.stop, "what is read was put there and not dropped"
        found = bytes(self.memory[start - self.start : stop - self.start])
        if len(found) < stop - start:
            found += self._read_file(start + len(found), stop)
        return found

    def _read_file(self, start: int, stop: int) -> bytes:
        assert self.file is not None
        data = os.pread(self.file.fileno(), stop - start, start - self.file_start)
        if len(data) < stop - start:
            raise OSError(f"{stop - start - len(data)} bytes are missing from a file of the node's own")
        return data

    def drop(self, stop: int) -> None:
        """Forget what is before `stop`."""
        del self.memory[: stop - self.start]
        self.start = stop

    def close(self) -> None:
        """Forget the file."""
        if self.file is not None:
            self.file.close()
            self.file = None


class Shelves:
    """The bytes of all streams of one node.

    >>> shelves = Shelves(4)
    >>> shelves.put(b"s", b"abc")
    >>> shelves.put(b"s", b"def")
    >>> shelves.read(b"s", 1, 6), shelves.held_bytes, shelves.spilled_bytes
    (b'bcdef', 3, 3)
    >>> shelves.forget(b"s")
    """

    def __init__(self, held_bytes_max: int, folder: Path | None = None) -> None:
        self._held_bytes_max = held_bytes_max
        self._folder = folder
        self._shelves: dict[bytes, Shelf] = {}
        self.held_bytes = 0
        """In memory, of all of them: never more than the cap."""

    @property
    def spilled_bytes(self) -> int:
        """In files, of all of them."""
        return sum(shelf.spilled_bytes for shelf in self._shelves.values())

    def put(self, source: bytes, data: bytes) -> None:
        """Keep bytes behind those that are there. Raises `OSError`."""
        shelf = self._shelves.setdefault(source, Shelf())
        if shelf.file is None and self.held_bytes + len(data) <= self._held_bytes_max:
            shelf.memory += data
            shelf.stop += len(data)
            self.held_bytes += len(data)
        else:
            shelf.spill(data, self._folder)

    def read(self, source: bytes, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)` of a stream. Raises `OSError`."""
        return self._shelves[source].read(start, stop) if start < stop else b""

    def drop(self, source: bytes, stop: int) -> None:
        """Forget what is before `stop`; what is left in the file comes into memory when there is room."""
        shelf = self._shelves[source]
        self.held_bytes -= len(shelf.memory)
        shelf.drop(stop)
        self.held_bytes += len(shelf.memory)
        if shelf.file is not None and self.held_bytes + shelf.spilled_bytes <= self._held_bytes_max:
            rest = shelf.read(shelf.start, shelf.stop)
            self.held_bytes += len(rest) - len(shelf.memory)
            shelf.memory = bytearray(rest)
            shelf.close()

    def forget(self, source: bytes) -> None:
        """All of a stream is not needed any more."""
        shelf = self._shelves.pop(source, None)
        if shelf is not None:
            self.held_bytes -= len(shelf.memory)
            shelf.close()

    def close(self) -> None:
        """Forget everything."""
        for source in list(self._shelves):
            self.forget(source)
