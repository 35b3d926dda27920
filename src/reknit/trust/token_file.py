"""The file of tokens: read by nodes, changed by `reknit token`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from reknit.config.credentials import read_private
from reknit.trust.tokens import Token, parse_tokens

SETTING: Final = "security.tokens_file"
HEADER: Final = "# reknit tokens: name, identity, hash, created, expires. Change them with `reknit token`.\n"


def read_tokens(path: str) -> list[Token]:
    """The tokens in a file; none without a file. Raises `InvalidConfig`."""
    return list(parse_tokens(read_private(path, SETTING), SETTING, path)) if path else []


def add_token(path: str, token: Token) -> None:
    """Add a token; the file is made if it does not exist. Raises `InvalidConfig`, `FileExistsError`, `OSError`."""

    def added(text: str) -> str:
        if any(one.name == token.name for one in parse_tokens(text, SETTING, path)):
            raise FileExistsError(17, f"there is a token {token.name!r} already; revoke it first", path)
        return f"{text.rstrip()}\n{token.line}\n" if text else f"{HEADER}{token.line}\n"

    _change(path, added)


def remove_token(path: str, name: str) -> None:
    """Remove a token; comments and other tokens stay. Raises `InvalidConfig`, `LookupError`, `OSError`."""

    def removed(text: str) -> str:
        if not any(one.name == name for one in parse_tokens(text, SETTING, path)):
            raise LookupError(f"{path} has no token {name!r}")
        kept = [line for line in text.splitlines() if line.split()[:1] != [name]]
        return "".join(f"{line}\n" for line in kept)

    _change(path, removed)


def _change(path: str, make: Callable[[str], str]) -> None:
    """Change the text of a file: all of it or nothing, and one process at a time."""
    place = Path(os.path.realpath(path))
    folder = os.open(place.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        text = make(read_private(path, SETTING) if place.exists() else "")
        draft = place.with_name(f".{place.name}.{os.getpid()}")
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(made)
        os.replace(draft, place)
        os.fsync(folder)
    finally:
        os.close(folder)
