"""The sink's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reknit.spark.options import TLS_OPTIONS, InvalidOption, read_list, read_options, read_size
from reknit.transport.tls import TlsFiles

__all__ = ["SinkOptions"]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write. The names in Spark are these in camel case."""

    nodes: tuple[str, ...]
    """One address: all events of a sink go to the same node, which knows which of them it already has."""
    topic: str = ""
    """For rows without a column `topic`."""
    sink_id: str = ""
    """Names this sink. The node stores each batch id of one sink once."""
    batch_id: int = -1
    """The number of this write, for `df.write`; a streaming query numbers its own."""
    ttl_ms: int = 0
    priority: int = 1
    batch_bytes: int = 1 << 20
    timeout_s: float = 30.0
    token: str = ""
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    """Shown to nodes that ask for a certificate."""
    tls_key_file: str = ""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options. Raises `InvalidOption`.

        >>> SinkOptions.read({"nodes": "tcp://a", "topic": "plant/alerts"}).topic
        'plant/alerts'
        """
        made = cls(**read_options(cls, options, _READERS))
        if len(made.nodes) != 1:
            raise InvalidOption(
                "nodes", ",".join(made.nodes), "must be one node: the sink's events stay together"
            )
        return made

    @property
    def tls(self) -> TlsFiles:
        """The files for nodes with TLS."""
        return TlsFiles(self.tls_ca_file, self.tls_cert_file, self.tls_key_file, TLS_OPTIONS)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "nodes": read_list,
    "topic": str,
    "sink_id": str,
    "batch_id": int,
    "ttl_ms": int,
    "priority": int,
    "batch_bytes": read_size,
    "timeout_s": float,
    "token": str,
    "tls_ca_file": str,
    "tls_cert_file": str,
    "tls_key_file": str,
}
