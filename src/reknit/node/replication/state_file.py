"""A small file beside the journal, for state that has to outlast a restart and is not an event."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from reknit.config import Config
from reknit.decoding import UNREADABLE

log = logging.getLogger("reknit.node")

SAVE_S: Final = 1.0
T = TypeVar("T")


class StateFile(Generic[T]):
    """A value and its file. A node whose journal is in memory has no file."""

    def __init__(self, config: Config, name: str, kind: type[T]) -> None:
        self._path: Path | None = config.node.data_dir / name if config.journal.kind == "disk" else None
        self._saving: asyncio.TimerHandle | None = None
        self.value: T = self._load(kind)

    def _load(self, kind: type[T]) -> T:
        if self._path is None or not self._path.exists():
            return kind()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=kind)
        except (*UNREADABLE, OSError) as error:
            log.error("%s can't be read and is ignored: %s", self._path, error)
            return kind()

    def save_soon(self) -> None:
        """Write it, together with all other changes within a second."""
        if self._path is not None and self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_S, self.save)

    def save(self) -> None:
        """Write it now."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        if self._path is None:
            return
        try:
            part = self._path.with_suffix(".new")
            part.write_bytes(msgspec.json.encode(self.value))
            part.replace(self._path)
        except OSError as error:
            log.error("%s can't be written: %s", self._path, error)

    def close(self) -> None:
        """Write the changes that are not written yet."""
        if self._saving is not None:
            self.save()
