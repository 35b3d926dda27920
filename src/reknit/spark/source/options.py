"""The source's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from reknit.checkpoint import Checkpoint
from reknit.spark.options import (
    TLS_OPTIONS,
    read_boolean,
    read_list,
    read_one_of,
    read_options,
    read_positive,
    read_size,
)
from reknit.spark.source.schema import KINDS
from reknit.topic import Pattern
from reknit.transport.tls import TlsFiles

__all__ = ["SourceOptions"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read. The names in Spark are these in camel case."""

    nodes: tuple[str, ...]
    """`tcp://` or `tls://` addresses, or `file://` for the journal of a stopped node, separated by commas."""
    rows: str = "events"
    topics: tuple[Pattern, ...] = ()
    """Patterns separated by commas; empty means every topic."""
    dead_letters: bool = False
    """Also read each node's dead-letter topic, whatever `topics` says."""
    start: str | int | Checkpoint = "earliest"
    """earliest, latest, a time (parsed to µs since 1970), or a checkpoint: events after these seqs."""
    journal: str = "auto"
    """tcp: ask the node; file: read its directory; auto: read the directory if it is on this machine."""
    max_events_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    partition_bytes: int = 0
    """Bytes of a journal per task; 0: a core's share of a table, a quarter of a micro-batch, 8 MiB or more."""
    fail_on_data_loss: bool = True
    fail_on_node_away: bool | None = None
    """By default a batch read fails, and a streaming query continues with the other nodes."""
    node_wait_s: float = 60.0
    """How long a task waits for the node of its partition."""
    timeout_s: float = 10.0
    token: str = ""
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    """Shown to nodes that ask for a certificate."""
    tls_key_file: str = ""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        """From Spark's options. Raises `InvalidOption`.

        >>> SourceOptions.read({"nodes": "tcp://a,tcp://b", "maxBytesPerTrigger": "64m"}).max_bytes_per_trigger
        67108864
        """
        return cls(**read_options(cls, options, _READERS))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint to start after, if `start` is one."""
        return None if isinstance(self.start, str | int) else self.start

    @property
    def tls(self) -> TlsFiles:
        """The files for nodes with TLS."""
        return TlsFiles(self.tls_ca_file, self.tls_cert_file, self.tls_key_file, TLS_OPTIONS)


def _patterns(text: str) -> tuple[Pattern, ...]:
    return tuple(map(Pattern, read_list(text)))


def _start(text: str) -> str | int | Checkpoint:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.startswith("c1."):
        return Checkpoint.from_text(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "is not one of earliest, latest, a checkpoint (c1.…), a time (2030-01-31T12:00:00Z)"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "nodes": read_list,
    "rows": read_one_of(*KINDS),
    "topics": _patterns,
    "dead_letters": read_boolean,
    "start": _start,
    "journal": read_one_of("auto", "tcp", "file"),
    "max_events_per_trigger": read_positive,
    "max_bytes_per_trigger": read_size,
    "partition_bytes": read_size,
    "fail_on_data_loss": read_boolean,
    "fail_on_node_away": read_boolean,
    "node_wait_s": float,
    "timeout_s": float,
    "token": str,
    "tls_ca_file": str,
    "tls_cert_file": str,
    "tls_key_file": str,
}
