"""Where a group's keys come from: a file that is read again when it changes, the environment, or the program."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from reknit.config.credentials import read_private
from reknit.errors import InvalidConfig
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.transport.tls import file_state

if TYPE_CHECKING:
    from reknit.protocol.sealing.seal import Seal

log = logging.getLogger("reknit.group")

VARIABLE: Final = "REKNIT_GROUP_KEY"
"""The environment variable with the keys, where there is no file."""
CHECK_S: Final = 2.0
"""How often the file is compared with what was read."""


class GroupKeys:
    """The keys of a member, and the file that they were read from, if any."""

    def __init__(self, shared: SharedKeys, path: str = "") -> None:
        self.shared = shared
        self.path = path
        self._state = file_state(path) if path else None

    @classmethod
    def configured(cls, path: str) -> GroupKeys | None:
        """The keys of a file, or of the environment if no file is named; None without either.

        Raises `InvalidConfig`, for example if others can read the file.
        """
        if path:
            return cls(_read(path), path)
        if text := os.environ.get(VARIABLE):
            return cls(SharedKeys.parse(text, VARIABLE))
        return None

    def seal(self, group: int, me: bytes) -> Seal:
        """The seal of a member. Raises `InvalidConfig` if the package for it is missing."""
        try:
            from reknit.protocol.sealing.seal import Seal
        except ModuleNotFoundError as error:
            why = f"needs {error.name}: pip install 'reknit[crypto]'"
            raise InvalidConfig("group.key_file", self.path or VARIABLE, why) from None
        return Seal(group, me, self.shared)

    def has_changed(self) -> bool:
        """Read the file again if it changed. If it can't be used, that is logged, and the keys stay as they were."""
        state = file_state(self.path) if self.path else None
        if state == self._state:
            return False
        self._state = state
        try:
            self.shared = _read(self.path)
        except InvalidConfig as error:
            log.error("the group's keys stay as they were: %s", error)
            return False
        names = ", ".join(key.name for key in self.shared)
        log.warning("the group's keys were reloaded from %s: %s; the first is used", self.path, names)
        return True


def _read(path: str) -> SharedKeys:
    return SharedKeys.parse(read_private(path, "group.key_file"), path)
