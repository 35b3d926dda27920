"""Reads files of secrets that settings name. Others must not be able to read them."""

from __future__ import annotations

import os
from typing import Final

from reknit.errors import InvalidConfig

BYTES_MAX: Final = 16 << 20
"""A file of secrets is not longer."""
ROOT: Final = 0


def read_credentials(path: str, setting: str, secret: str = "password") -> dict[str, str]:
    """Each name with its secret, from a file with one of each on a line; empty without a file.

    Lines that begin with `#` are comments. Raises `InvalidConfig`, which names the setting and the line.
    """
    if not path:
        return {}
    secrets: dict[str, str] = {}
    for number, line in enumerate(read_private(path, setting).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidConfig(setting, f"{path} line {number}", f"needs a name and a {secret}")
        secrets[words[0]] = words[1]
    return secrets


def read_private(path: str, setting: str) -> str:
    """The text of a file that only its owner may read. Raises `InvalidConfig`.

    A file of root's may be readable for its group too: that is how systems hand secrets to a service.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_mode & (0o037 if found.st_uid == ROOT else 0o077):
                why = f"can be read or changed by others (mode {found.st_mode & 0o777:03o}): chmod 600 {path}"
                raise InvalidConfig(setting, path, why)
            data = file.read(BYTES_MAX + 1)
            if len(data) > BYTES_MAX:
                raise InvalidConfig(setting, path, f"is longer than {BYTES_MAX:,} bytes")
            return data.decode("utf-8")
    except UnicodeDecodeError:  # the error would quote a part of the file
        raise InvalidConfig(setting, path, "can't be read: it is not UTF-8") from None
    except OSError as error:
        raise InvalidConfig(
            setting, path, f"can't be read: {os.strerror(error.errno or 0).lower()}"
        ) from None
