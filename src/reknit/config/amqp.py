"""`[amqp]`: the AMQP 1.0 gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.addresses import check_host_port
from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB

__all__ = ["AmqpSettings"]

MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL")


def _check_mechanisms(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not a SASL mechanism; choose from {', '.join(MECHANISMS)}")
    if not names:
        raise ValueError(f"the list of SASL mechanisms is empty; choose from {', '.join(MECHANISMS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSettings(Section):
    """AMQP 1.0 clients: where they connect, how they authenticate, and how much they may hold.

    It has more than 15 fields because each is a setting of this section.

    >>> AmqpSettings(listen="127.0.0.1:5672").mechanisms
    ('ANONYMOUS',)
    """

    title: ClassVar[str] = "amqp"
    listen: str = setting("", "host:port to serve AMQP 1.0 on; empty: no AMQP", check=check_host_port)
    mechanisms: tuple[str, ...] = setting(
        ("ANONYMOUS",), "SASL mechanisms on offer: ANONYMOUS, PLAIN, EXTERNAL", check=_check_mechanisms
    )
    users_file: str = setting("", "a file with a name and a password on each line, for PLAIN; empty: nobody")
    plain_needs_tls: bool = setting(True, "offer PLAIN, which shows the password, on TLS connections only")
    tls_cert_file: str = setting("", "the gateway's certificate (PEM); empty: no TLS")
    tls_key_file: str = setting("", "the certificate's private key (PEM)")
    tls_ca_file: str = setting(
        "", "authorities that sign clients' certificates (PEM), for EXTERNAL; empty: ask for none"
    )
    tls_needs_client_cert: bool = setting(
        False, "refuse clients without a certificate from an authority in tls_ca_file"
    )
    connections_max: int = setting(1_024, "AMQP connections to one node", low=1)
    sessions_max: int = setting(256, "sessions of one connection", low=1, high=32_768)
    links_max: int = setting(1_024, "links of one connection", low=1)
    frame_bytes_max: int = setting(16 * KIB, "longest AMQP frame", low=512, high=16 * MIB)
    session_bytes_max: int = setting(
        16 * MIB, "sent on one session and not yet read, counted in frames of the longest size", low=KIB
    )
    message_bytes_max: int = setting(
        8 * MIB, "longest message, if limits.payload_bytes_max is not less; past it the link is closed", low=1
    )
    stream_bytes_min: int = setting(
        1 * MIB,
        "a longer message is forwarded while it still arrives, if a subscriber takes streams",
        low=KIB,
    )
    assembly_bytes_max: int = setting(
        64 * MIB, "messages of one connection that are still arriving; past it their links are closed", low=1
    )
    intake_bytes_max: int = setting(
        16 * MIB, "received on one connection and without an outcome; past it the connection waits", low=1
    )
    output_bytes_max: int = setting(
        1 * MIB, "bytes that wait to be sent on one session; past it its links wait", low=1
    )
    credit_events: int = setting(250, "messages that one sender may send ahead", low=1)
    unsettled_events_max: int = setting(4_000, "messages of one sender without an outcome", low=1)
    relay_topics_max: int = setting(1_024, "topics that one sender without an address may have open", low=1)
    idle_s: float = setting(30.0, "how long a client may be silent before its connection is closed", low=0.1)
    hello_timeout_s: float = setting(10.0, "how long a client may take to authenticate", low=0.01)
    stop_timeout_s: float = setting(2.0, "how long links may take to close when the node stops")
