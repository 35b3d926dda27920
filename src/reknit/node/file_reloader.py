"""Reads files again while a node runs: on request (SIGHUP), and when one of them has changed.

Whatever a node reads from files can join: it names its files, and reads them again in `reload`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from reknit.errors import ReknitError
from reknit.transport.tls import FileState, file_state

log = logging.getLogger("reknit.node")

CHECK_S: Final = 2.0
"""How often the files are compared with what was read."""


OnReload = Callable[[str, str, str], None]
"""Is told the name of what was read again, its files, and why it stays as it was; empty if it does not."""


class Reloadable(Protocol):
    """Was read from files, and can be read again."""

    @property
    def files(self) -> Sequence[str]:
        """The files."""

    def reload(self) -> None:
        """Read them again. Raises `ReknitError`; then everything stays as it was."""


class FileReloader:
    """Everything of one node that is read from files and may change."""

    def __init__(self) -> None:
        self._parts: dict[str, Reloadable] = {}
        self._states: dict[str, list[FileState]] = {}
        self._check_at = 0.0
        self._on_reload: OnReload | None = None

    def watch(self, on_reload: OnReload) -> None:
        """Call this whenever something was read again, or could not be."""
        self._on_reload = on_reload

    def add(self, name: str, part: Reloadable | None) -> None:
        """From now on, read this again when it changes. `name` is for the log; None is nothing to reload."""
        if part is not None:
            self._parts[name] = part
            self._states[name] = _states(part)

    def reload(self) -> None:
        """Read everything again, and log what came of it."""
        names = [name for name, part in self._parts.items() if part.files]
        if not names:
            log.warning(
                "there is nothing to reload: neither certificates nor tokens nor rules come from files"
            )
        for name in names:
            self._reload(name)

    def check(self, now: float) -> None:
        """Read again what has changed since it was read."""
        if now < self._check_at:
            return
        self._check_at = now + CHECK_S
        for name, part in self._parts.items():
            if _states(part) != self._states[name]:
                self._reload(name)

    def _reload(self, name: str) -> None:
        part = self._parts[name]
        files, self._states[name] = list(part.files), _states(part)
        try:
            part.reload()
            if list(part.files) != files:
                self._states[name] = _states(part)
        except ReknitError as error:
            log.error("%s stays as it was: %s", name, error)
            self._tell(name, part, str(error))
        else:
            log.warning("%s was reloaded from %s", name, ", ".join(part.files))
            self._tell(name, part)

    def _tell(self, name: str, part: Reloadable, why: str = "") -> None:
        if self._on_reload is not None:
            self._on_reload(name, ", ".join(part.files), why)


def _states(part: Reloadable) -> list[FileState]:
    return [file_state(path) for path in part.files]
