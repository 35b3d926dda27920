"""`[transport]`: how connections are kept alive, reopened and encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.settings import Section, setting

__all__ = ["TransportSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings(Section):
    """How connections are kept alive, reopened and encrypted.

    >>> TransportSettings().heartbeat_s
    5.0
    """

    title: ClassVar[str] = "transport"
    heartbeat_s: float = setting(5.0, "how long a connection is quiet before a ping is sent", low=0.01)
    peer_timeout_s: float = setting(
        15.0, "how long a peer may be silent before its connection times out", low=0.01
    )
    hello_timeout_s: float = setting(5.0, "how long a new connection may take to introduce itself", low=0.01)
    reconnect_backoff_s_min: float = setting(0.1, "first back-off before reconnecting")
    reconnect_backoff_s_max: float = setting(10.0, "longest back-off before reconnecting")
    tls_cert_file: str = setting("", "this side's certificate (PEM); needed to listen on tls://")
    tls_key_file: str = setting("", "the certificate's private key (PEM)")
    tls_ca_file: str = setting(
        "",
        "authorities to trust (PEM), for nodes and for clients' certificates; empty: the system's, no clients",
    )
    tls_needs_client_cert: bool = setting(
        False, "refuse clients on tls:// without a certificate from an authority in tls_ca_file"
    )
    tls_client_cert_file: str = setting(
        "", "the certificate (PEM) that this node or program shows to nodes; empty: tls_cert_file, if set"
    )
    tls_client_key_file: str = setting("", "the private key (PEM) of tls_client_cert_file")
