"""A file with the keys of a group: reads, changes and writes it. No key is ever printed."""

from __future__ import annotations

import contextlib
import os
import secrets

from reknit.cli.output import fail
from reknit.config.credentials import read_private
from reknit.protocol.sealing.shared_keys import KEY_BYTES, KEYS_MAX, SharedKey, SharedKeys

HEADER = "# The keys of a group. The first one is used, all are accepted. Only members may read this file.\n"


class KeyFile:
    """The keys in a file, in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.keys = list(SharedKeys.parse(read_private(path, "group.key_file"), path))

    @staticmethod
    def create(path: str) -> SharedKey:
        """Make a file with one new key. An existing file is left alone."""
        key = _new_key()
        try:
            _write(path, [key])
        except FileExistsError:
            fail(f"{path} exists; `reknit group key add {path}` adds a key to it")
        return key

    def add(self) -> SharedKey:
        """Add a new key after the others."""
        if len(self.keys) >= KEYS_MAX:
            fail(f"{self._path} has {KEYS_MAX} keys already; remove one that nobody uses")
        self.keys.append(_new_key())
        self._replace()
        return self.keys[-1]

    def use(self, name: str) -> None:
        """Put a key first."""
        key = self._key(name)
        self.keys.remove(key)
        self.keys.insert(0, key)
        self._replace()

    def remove(self, name: str) -> None:
        """Remove a key, but never the only one."""
        key = self._key(name)
        if len(self.keys) == 1:
            fail(f"{name} is the only key in {self._path}; add another one first")
        self.keys.remove(key)
        self._replace()

    def _key(self, name: str) -> SharedKey:
        found = [key for key in self.keys if key.name == name]
        if not found:
            fail(f"{self._path} has no key {name}; it has {', '.join(key.name for key in self.keys)}")
        return found[0]

    def _replace(self) -> None:
        """Members that read the file at any time see the old or the new keys."""
        temporary = f"{self._path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        _write(temporary, self.keys)
        os.replace(temporary, self._path)


def _new_key() -> SharedKey:
    return SharedKey(secrets.token_bytes(KEY_BYTES))


def _write(path: str, keys: list[SharedKey]) -> None:
    """Write a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(HEADER)
        file.writelines(f"{key.secret.hex()}  # {key.name}\n" for key in keys)
        file.flush()
        os.fsync(descriptor)
