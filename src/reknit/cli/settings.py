"""Settings given on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.errors import InvalidConfig


def parsed(pairs: Sequence[str]) -> dict[str, object]:
    """The settings of `--set section.key=value`, by full name.

    >>> parsed(["limits.batch_bytes=64 KiB"])
    {'limits.batch_bytes': '64 KiB'}
    """
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise InvalidConfig(pair, "flag", "is not a setting; write --set section.key=value")
        settings[name.strip()] = value.strip()
    return settings
