"""`[http]`: tunnels over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.addresses import check_host_port, check_network
from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB

__all__ = ["HttpSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Section):
    """Tunnels over HTTP: mod_pubsub, Server-Sent Events and WebSocket.

    It has more than 15 fields because each is a setting of this section.

    >>> HttpSettings(listen="127.0.0.1:8080").grace_s
    60.0
    """

    title: ClassVar[str] = "http"
    listen: str = setting("", "host:port to serve tunnels on; empty: no tunnels", check=check_host_port)
    tls_cert_file: str = setting("", "the gateway's certificate (PEM), for https; empty: no TLS")
    tls_key_file: str = setting("", "the certificate's private key (PEM)")
    tls_ca_file: str = setting("", "authorities that sign clients' certificates (PEM); empty: ask for none")
    tls_needs_client_cert: bool = setting(
        False, "refuse clients without a certificate from an authority in tls_ca_file"
    )
    scheme: Literal["kn_event_hash", "kn_route_checkpoint"] = setting(
        "kn_event_hash", "how a mod_pubsub client is told to reconnect"
    )
    grace_s: float = setting(60.0, "how long a disconnected client can resume by kn_event_hash", low=1)
    follow_s: float = setting(
        3_600.0, "how long linked nodes go on sending a tunnel's topics after its last client left", low=1
    )
    heartbeat_s: float = setting(15.0, "how long a tunnel is quiet before it gets a heartbeat", low=0.01)
    retry_ms: int = setting(1_000, "how long a disconnected browser waits before it reconnects, about")
    tunnels_max: int = setting(100_000, "tunnels open on one node", low=1)
    tunnels_per_address_max: int = setting(10_000, "tunnels open from one address", low=1)
    channels_max: int = setting(100, "tunnels open on one WebSocket", low=1)
    compress: bool = setting(
        True, "compress messages on WebSockets of clients that offer it (permessage-deflate)"
    )
    files_reserved: int = setting(
        64, "open files that tunnels leave to the journal and other connections", low=8
    )
    tunnel_bytes_max: int = setting(256 * KIB, "bytes buffered for one tunnel that does not read", low=1)
    stall_s_max: float = setting(30.0, "how long a tunnel may read nothing before it is closed", low=0.01)
    populate_events_max: int = setting(10_000, "events that a new route is populated with", low=1)
    request_bytes_max: int = setting(1 * MIB, "longest request", low=KIB)
    request_timeout_s: float = setting(10.0, "how long a request may take to arrive", low=0.01)
    stop_timeout_s: float = setting(2.0, "how long tunnels may take to close when the node stops")
    hosts: tuple[str, ...] = setting(
        (),
        "further names of a node that listens on the loopback address, as a proxy passes them on; '*': all",
    )
    console: bool = setting(True, "serve the console at / and the figures below /api/v1/")
    origins: tuple[str, ...] = setting((), "other sites whose pages may use this node; '*': all")
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "addresses or networks of proxies: X-Forwarded-For, -Host, -Proto and the PROXY protocol (version 2) count "
        "from there, and from nowhere else",
        check=check_network,
    )
