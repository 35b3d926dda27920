"""Options of the data source and the sink: text from `.option(…)`, checked once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final

from reknit.errors import LocalError

__all__ = [
    "TLS_OPTIONS",
    "InvalidOption",
    "read_boolean",
    "read_list",
    "read_one_of",
    "read_options",
    "read_positive",
    "read_size",
]

TLS_OPTIONS: Final = ("tlsCaFile", "tlsCertFile", "tlsKeyFile")
"""The options with the files of `TlsFiles`."""
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)
_SPARK_OPTIONS: Final = frozenset({"path", "checkpointlocation", "querytype", "schema"})
"""Spark's own options, which it passes on to every data source."""
_OF_A_TABLE: Final = "option."
"""What `CREATE TABLE` has before the names of options."""


class InvalidOption(LocalError, ValueError):
    """An option is unknown or missing, or its value is not valid.

    >>> print(InvalidOption("rows", "'lines'", "is not one of events, batches, outcomes"))
    option rows of format 'reknit': 'lines' is not one of events, batches, outcomes
    """

    def __init__(self, name: str, value: str, why: str) -> None:
        super().__init__(name, value, why)
        self.name, self.value, self.why = name, value, why

    def __str__(self) -> str:
        return f"option {self.name} of format 'reknit': {self.value} {self.why}".replace(":  ", ": ")


def read_options(
    cls: type[Any], options: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """The fields of `cls` that `options` names, each parsed by its reader. Raises `InvalidOption`.

    The names in Spark are the fields' names in camel case; upper and lower case do not matter.
    """
    names = {field.name.replace("_", ""): field.name for field in fields(cls)}
    values: dict[str, Any] = {}
    if any(key.startswith(_OF_A_TABLE) for key in options):
        why = (
            "is not possible: Spark stores the options and does not pass them to a source in Python; "
            "write CREATE TEMPORARY VIEW name USING reknit OPTIONS (…)"
        )
        raise InvalidOption("table", "CREATE TABLE", why)
    for key, text in options.items():
        name = names.get(key.lower().replace("_", ""))
        if name is not None:
            values[name] = _value(_camel(name), text, readers[name])
        elif key.lower() not in _SPARK_OPTIONS:
            raise InvalidOption(key, repr(text), f"is not known here; {_suggestion(key, names)}")
    if not values.get("nodes"):
        raise InvalidOption("nodes", "it", "is required: the nodes' addresses, such as tcp://127.0.0.1:7440")
    return values


def _suggestion(key: str, names: Mapping[str, str]) -> str:
    near = get_close_matches(key.lower(), names, 1)
    if near:
        return f"did you mean {_camel(names[near[0]])}?"
    return f"known: {', '.join(map(_camel, names.values()))}"


def _value(name: str, text: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(text.strip())
    except (ValueError, LookupError) as error:
        raise InvalidOption(name, repr(text), str(error).strip("'") or "can't be read") from None


def _camel(name: str) -> str:
    """
    >>> _camel("max_events_per_trigger")
    'maxEventsPerTrigger'
    """
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def read_one_of(*allowed: str) -> Callable[[str], str]:
    """A reader that accepts these words."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"is not one of {', '.join(allowed)}")
        return text.lower()

    return read


def read_boolean(text: str) -> bool:
    """`true` or `false`."""
    return read_one_of("true", "false")(text) == "true"


def read_positive(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise ValueError("is not a whole number above 0")
    return int(text)


def read_size(text: str) -> int:
    """Bytes.

    >>> read_size("64m"), read_size("100")
    (67108864, 100)
    """
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise ValueError("is not a size: write bytes, or 64m for MiB")
    return int(found[1]) * _SIZES[found[2].lower()]


def read_list(text: str) -> tuple[str, ...]:
    """Values separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
