"""Settings given on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from reknit.errors import InvalidConfig

SECRETS = {
    "security.token": "set REKNIT_SECURITY__TOKEN, or name a file in security.token_file",
}
"""Settings that no flag may contain, and what to do instead."""


def parsed(pairs: Sequence[str]) -> dict[str, object]:
    """The settings of `--set section.key=value`, by full name.

    >>> parsed(["limits.batch_bytes=64 KiB"])
    {'limits.batch_bytes': '64 KiB'}
    >>> parsed(["security.allow=['ann publish a/**', 'bob admin']"])
    {'security.allow': ['ann publish a/**', 'bob admin']}
    """
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise InvalidConfig(pair, "flag", "is not a setting; write --set section.key=value")
        if name.strip() in SECRETS:
            why = f"is a secret, which others could see in the list of processes: {SECRETS[name.strip()]}"
            raise InvalidConfig(name.strip(), "flag", why)
        settings[name.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> object:
    """A value as it would stand in the file if it begins as a TOML list or text does, else as it is."""
    if not text.startswith(("[", '"', "'")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
