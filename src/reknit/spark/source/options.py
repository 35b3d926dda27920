"""The source's and the sink's options: text from `.option(…)`, checked once, frozen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from reknit.checkpoint import Checkpoint
from reknit.spark.source.schema import KINDS, InvalidOption
from reknit.topic import Pattern

__all__ = ["InvalidOption", "SinkOptions", "SourceOptions"]

MIB: Final = 1 << 20
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)
_SPARKS: Final = frozenset({"path", "checkpointlocation", "querytype", "schema"})
"""Spark's own, which it hands on."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read. The names in Spark are these in camel case."""

    nodes: tuple[str, ...]
    """`tcp://`, `tls://` or, for a journal whose node is stopped, `file://` addresses, separated by commas."""
    rows: str = "events"
    topics: tuple[Pattern, ...] = ()
    """Patterns separated by commas; none is everything."""
    start: str | int | Checkpoint = "earliest"
    """earliest, latest, a time (µs since 1970, once read), or a checkpoint: after these seqs."""
    journal: str = "auto"
    """tcp: ask the node; file: read its directory; auto: the directory where it is on this machine."""
    max_events_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    partition_bytes: int = 0
    """How much of a journal one task reads; 0: a core's share of a table, a quarter of a micro-batch, 8 MiB or more."""
    fail_on_data_loss: bool = True
    fail_on_node_away: bool | None = None
    """By default a batch read fails, and a stream goes on with the other nodes."""
    node_wait_s: float = 60.0
    """How long a part that is already planned waits for its node."""
    timeout_s: float = 10.0
    token: str = ""
    tls_ca_file: str = ""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        """From Spark's options. Raises `InvalidOption`.

        >>> SourceOptions.read({"nodes": "tcp://a,tcp://b", "maxBytesPerTrigger": "64m"}).max_bytes_per_trigger
        67108864
        """
        return cls(**_read(cls, options, _SOURCE_READERS))


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write."""

    nodes: tuple[str, ...]
    """One address: all of a sink's events go to the same node, which knows what it has of them."""
    topic: str = ""
    """For rows without a column `topic`."""
    sink_id: str = ""
    """Names this sink. Writes under one name are told apart by their batch, and the same batch is kept once."""
    batch_id: int = -1
    """The number of this write, for `df.write`; a stream has its own."""
    ttl_ms: int = 0
    priority: int = 1
    batch_bytes: int = 1 * MIB
    timeout_s: float = 30.0
    token: str = ""
    tls_ca_file: str = ""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options. Raises `InvalidOption`.

        >>> SinkOptions.read({"nodes": "tcp://a", "topic": "plant/alerts"}).topic
        'plant/alerts'
        """
        made = cls(**_read(cls, options, _SINK_READERS))
        if len(made.nodes) != 1:
            raise InvalidOption(
                "nodes", ",".join(made.nodes), "must be one node: the sink's events stay together"
            )
        return made


def _read(
    cls: type[Any], options: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """The fields that are named in `options`, each read by its reader."""
    names = {field.name.replace("_", ""): field.name for field in fields(cls)}
    made: dict[str, Any] = {}
    for key, text in options.items():
        name = names.get(key.lower().replace("_", ""))
        if name is not None:
            made[name] = _value(_camel(name), text, readers[name])
        elif key.lower() not in _SPARKS:
            near = get_close_matches(key.lower(), names, 1)
            known = (
                f"did you mean {_camel(names[near[0]])}?"
                if near
                else f"known: {', '.join(map(_camel, names.values()))}"
            )
            raise InvalidOption(key, repr(text), f"is not known here; {known}")
    if not made.get("nodes"):
        raise InvalidOption("nodes", "it", "is needed: the nodes' addresses, as in tcp://127.0.0.1:7440")
    return made


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


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"is none of {', '.join(allowed)}")
        return text.lower()

    return read


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ValueError("is not a whole number above 0")
    return int(text)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise ValueError("is not a size: write bytes, or 64m for MiB")
    return int(found[1]) * _SIZES[found[2].lower()]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _patterns(text: str) -> tuple[Pattern, ...]:
    return tuple(map(Pattern, _list(text)))


def _start(text: str) -> str | int | Checkpoint:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.startswith("c1."):
        return Checkpoint.from_text(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "is none of earliest, latest, a checkpoint (c1.…), a time (2030-01-31T12:00:00Z)"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6)


_SOURCE_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "nodes": _list,
    "rows": _one_of(*KINDS),
    "topics": _patterns,
    "start": _start,
    "journal": _one_of("auto", "tcp", "file"),
    "max_events_per_trigger": _positive,
    "max_bytes_per_trigger": _size,
    "partition_bytes": _size,
    "fail_on_data_loss": _boolean,
    "fail_on_node_away": _boolean,
    "node_wait_s": float,
    "timeout_s": float,
    "token": str,
    "tls_ca_file": str,
}

_SINK_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "nodes": _list,
    "topic": str,
    "sink_id": str,
    "batch_id": int,
    "ttl_ms": int,
    "priority": int,
    "batch_bytes": _size,
    "timeout_s": float,
    "token": str,
    "tls_ca_file": str,
}
