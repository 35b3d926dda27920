"""The bytes of streams that a node may have to send again: in memory up to a cap, in files past it.

A file has no name, so that nothing is left behind even if the node crashes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO


class SpilledStream:
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

    def hold(self, data: bytes) -> None:
        """Append bytes in memory."""
        self.memory += data
        self.stop += len(data)

    def load(self) -> None:
        """Take the bytes of the file into memory. Raises `OSError`."""
        self.memory = bytearray(self.read(self.start, self.stop))
        self.close()

    def spill(self, data: bytes, folder: Path | None) -> None:
        """Append bytes to the file. Raises `OSError`."""
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed with the stream
            self.file_start = self.stop
        at, rest = self.stop - self.file_start, memoryview(data)
        while rest:
            written = os.pwrite(self.file.fileno(), rest, at)
            at, rest = at + written, rest[written:]
        self.stop += len(data)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)`. Raises `OSError`."""
        assert self.start <= start <= stop <= self.stop, (
            "only bytes that were put and not dropped can be read"
        )
        found = bytes(self.memory[start - self.start : stop - self.start])
        if len(found) < stop - start:
            found += self._read_file(start + len(found), stop)
        return found

    def _read_file(self, start: int, stop: int) -> bytes:
        assert self.file is not None
        data = os.pread(self.file.fileno(), stop - start, start - self.file_start)
        if len(data) < stop - start:
            raise OSError(f"{stop - start - len(data)} bytes are missing from a file of the node")
        return data

    def drop(self, stop: int) -> None:
        """Forget the bytes before `stop`."""
        del self.memory[: stop - self.start]
        self.start = stop

    def close(self) -> None:
        """Forget the file."""
        if self.file is not None:
            self.file.close()
            self.file = None


class SpillBuffer:
    """The bytes of all streams of one node.

    >>> buffer = SpillBuffer(4)
    >>> buffer.put(b"s", b"abc")
    >>> buffer.put(b"s", b"def")
    >>> buffer.read(b"s", 1, 6), buffer.held_bytes, buffer.spilled_bytes
    (b'bcdef', 3, 3)
    >>> buffer.forget(b"s")
    """

    def __init__(self, held_bytes_max: int, folder: Path | None = None) -> None:
        self._held_bytes_max = held_bytes_max
        self._folder = folder
        self._streams: dict[bytes, SpilledStream] = {}
        self.held_bytes = 0
        """In memory, of all streams: never more than the cap."""

    @property
    def spilled_bytes(self) -> int:
        """In files, of all streams."""
        return sum(stream.spilled_bytes for stream in self._streams.values())

    def put(self, source: bytes, data: bytes) -> None:
        """Append bytes to a stream. Raises `OSError`."""
        stream = self._streams.setdefault(source, SpilledStream())
        if stream.file is None and self.held_bytes + len(data) <= self._held_bytes_max:
            stream.hold(data)
            self.held_bytes += len(data)
        else:
            stream.spill(data, self._folder)

    def read(self, source: bytes, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)` of a stream. Raises `OSError`."""
        return self._streams[source].read(start, stop) if start < stop else b""

    def drop(self, source: bytes, stop: int) -> None:
        """Forget the bytes before `stop`; the rest of the file comes into memory when there is room."""
        stream = self._streams[source]
        self.held_bytes -= len(stream.memory)
        stream.drop(stop)
        self.held_bytes += len(stream.memory)
        if stream.file is not None and self.held_bytes + stream.spilled_bytes <= self._held_bytes_max:
            self.held_bytes -= len(stream.memory)
            stream.load()
            self.held_bytes += len(stream.memory)

    def forget(self, source: bytes) -> None:
        """A stream is not needed any more."""
        stream = self._streams.pop(source, None)
        if stream is not None:
            self.held_bytes -= len(stream.memory)
            stream.close()

    def close(self) -> None:
        """Forget everything."""
        for source in list(self._streams):
            self.forget(source)
