"""Reads the files of names and their tokens or passwords that settings name."""

from __future__ import annotations

from pathlib import Path

from reknit.errors import InvalidConfig


def read_credentials(path: str, setting: str, secret: str = "token") -> dict[str, str]:
    """Each name with its secret, from a file with one of each on a line; empty without a file.

    Lines that begin with `#` are comments. Raises `InvalidConfig`, which names the setting and the line.
    """
    if not path:
        return {}
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(setting, path, f"can't be read: {error}") from None
    secrets: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidConfig(setting, f"{path} line {number}", f"needs a name and a {secret}")
        secrets[words[0]] = words[1]
    return secrets
