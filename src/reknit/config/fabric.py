"""The sections of the configuration for how nodes and programs of other kinds meet: links, groups, RPC, gateways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from reknit.config.node import check_urls
from reknit.config.settings import Section, setting

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LINK_COST_MAX = 1_000_000


def _check_links(texts: tuple[str, ...]) -> None:
    for text in texts:
        url, _, cost = text.partition("=")
        check_urls((url,))
        if cost and not (cost.isdigit() and 1 <= int(cost) <= LINK_COST_MAX):
            raise ValueError(f"{text!r} has no cost from 1 to {LINK_COST_MAX}; write tcp://host:port=10")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(Section):
    """Which other nodes this one is linked to, so that they are one fabric.

    >>> LinkSettings(to="tcp://10.0.0.7:7440=10").to
    ('tcp://10.0.0.7:7440=10',)
    """

    title: ClassVar[str] = "links"
    to: tuple[str, ...] = setting((), "nodes to link to: address, or address=cost", check=_check_links)
    cost: int = setting(1, "what a link costs for which no cost is given", low=1, high=LINK_COST_MAX)
    edge: bool = setting(False, "have one link at most, and never be on the way between others")
    beat_s: float = setting(1.0, "how often linked nodes give a sign and compare what they know", low=0.01)
    timeout_s: float = setting(3.5, "how long a linked node may be silent before it counts as gone", low=0.02)
    nodes_max: int = setting(1_024, "nodes that one node knows", low=2)
    window_events: int = setting(65_536, "anycast events that a linked node has and has not settled", low=1)
    window_bytes: int = setting(16 * MIB, "sent to a linked node and not yet kept there", low=1)
    heal_s: float = setting(30.0, "how far back to look for what may have got lost when a way changed")
    hops_max: int = setting(16, "links that an event crosses at most on bridges", low=1, high=255)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnycastSettings(Section):
    """How events are given to one of many.

    >>> AnycastSettings().trail_attempts_max
    100000
    """

    title: ClassVar[str] = "anycast"
    sender_unsettled_max: int = setting(65_536, "events of one sender without an outcome", low=1)
    held_bytes_max: int = setting(64 * MIB, "taken from the journal and on their way", low=1)
    parked_max: int = setting(100_000, "ranges of events that nobody takes, waiting for the next try", low=1)
    trail_attempts_max: int = setting(100_000, "ended attempts that `reknit trail` remembers")
    streams_max: int = setting(1_024, "streams under way on one node", low=1)
    stream_bytes_max: int = setting(64 * GIB, "in one stream", low=1)
    stream_window_bytes: int = setting(
        256 * KIB, "of one stream that are on their way to the next node or to a subscriber", low=2
    )
    streams_held_bytes_max: int = setting(
        16 * MIB, "of all streams in memory, to send them again; what is more goes into files", low=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastSettings(Section):
    """Groups: reliable multicast among programs. A member's settings; members may differ.

    >>> MulticastSettings(slow_member="evict").slow_member
    'evict'
    """

    title: ClassVar[str] = "group"
    address: str = setting(
        "239.75.78.84:7475", "multicast address and port; empty: members found by seeds only"
    )
    interface: str = setting("127.0.0.1", "address of the network interface to use")
    port: int = setting(0, "our own port, 0: any that is free", high=65_535)
    hops_max: int = setting(1, "routers that a datagram may pass", high=255)
    receive_buffer_bytes: int = setting(
        4 * MIB, "what the kernel holds for us between two reads", low=64 * KIB
    )
    tcp: bool = setting(False, "use TCP connections instead of datagrams; needs seeds")
    write_buffer_bytes: int = setting(8 * MIB, "what may wait for one member over TCP", low=64 * KIB)
    seeds: tuple[str, ...] = setting((), "addresses of members to find the others by, as HOST:PORT")
    capacity_events: int = setting(16_384, "the window: events of ours that may be unacked", low=1)
    window_bytes: int = setting(
        4 * MIB, "the window in bytes; less where socket buffers are smaller", low=64 * KIB
    )
    batch_events_max: int = setting(4_096, "events at which a batch is sent", low=1)
    batch_bytes_max: int = setting(
        261_600, "size at which a batch is sent; less where datagrams are small", low=1
    )
    event_bytes_max: int = setting(256 * KIB, "the largest event; a window must hold it", low=1)
    waiting_max: int = setting(10_000, "sends that may wait for room")
    members_max: int = setting(256, "members that a view may have", low=1)
    ask_s_max: float = setting(0.001, "a gap is asked for after a random delay of at most this")
    again_s_min: float = setting(0.005, "the cool-down until a gap is asked for again, at least")
    again_s_max: float = setting(0.25, "the cool-down, at most")
    ack_s: float = setting(0.02, "an owed ack is sent after this, if not for its number before")
    quiet_s: float = setting(0.01, "a sender that was quiet for so long announces its last seq")
    quiet_s_max: float = setting(0.5, "how often it says so at least, while acks are missing")
    repeat_s: float = setting(0.1, "what must be answered is said again after this")
    departed_s: float = setting(10.0, "how long survivors exchange what a departed sender left, at most")
    slow_member: Literal["block", "evict", "dead_letter"] = setting(
        "block", "what happens when a member takes nothing for `slow_s` while senders wait for it"
    )
    slow_s: float = setting(10.0, "how long no ack may come from the member that all wait for")
    discover_s: float = setting(0.5, "how long a joiner looks for a group before it founds one")
    hello_s: float = setting(0.1, "how often it says so")
    gather_s: float = setting(0.02, "joins and leaves within this become one view")
    beat_s: float = setting(0.5, "how often a member shows that it is there")
    suspect_s: float = setting(2.5, "a member not heard of for so long is suspected")
    confirm_s: float = setting(1.0, "and is out after so much longer")
    leave_s: float = setting(2.0, "how long a leaver waits for the view without it")
    skip_s: float = setting(
        2.0, "how long a node waits for a member to bring what it misses before that is lost"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings(Section):
    """Requests and their responses.

    >>> RpcSettings().ttl_ms
    5000
    """

    title: ClassVar[str] = "rpc"
    ttl_ms: int = setting(
        5_000, "how long a request is worth answering, unless it says", low=1, high=(1 << 32) - 1
    )
    grace_s: float = setting(1.0, "how long after that a client waits for the node's word on it")
    requests_max: int = setting(65_536, "requests of one session that wait for their responses", low=1)
    watched_max: int = setting(1_000_000, "requests that one node watches over; more are refused", low=1)
    handlers_max: int = setting(64, "requests that one service handles at a time; more wait", low=1)
    publishers_max: int = setting(1_024, "addresses that one session keeps ready to write to", low=1)


def _check_host_port(text: str) -> None:
    parts = urlsplit(f"//{text}")
    if text and (not parts.hostname or parts.port is None or parts.path):
        raise ValueError(f"{text!r} is no address; write host:port")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Section):
    """Tunnels over HTTP: mod_pubsub, Server-Sent Events and WebSocket.

    >>> HttpSettings(listen="127.0.0.1:8080").grace_s
    60.0
    """

    title: ClassVar[str] = "http"
    listen: str = setting("", "host:port to serve tunnels on; empty: none", check=_check_host_port)
    scheme: Literal["kn_event_hash", "kn_route_checkpoint"] = setting(
        "kn_event_hash", "how a mod_pubsub client is told to reconnect"
    )
    grace_s: float = setting(60.0, "how long a cut-off client can go on by kn_event_hash", low=1)
    heartbeat_s: float = setting(15.0, "how long a tunnel is quiet before it gets a heartbeat", low=0.01)
    retry_ms: int = setting(1_000, "how long a cut-off browser waits before it connects again, about")
    tunnels_max: int = setting(100_000, "tunnels open on one node", low=1)
    tunnels_per_address_max: int = setting(10_000, "tunnels open from one address", low=1)
    files_reserved: int = setting(
        64, "files that tunnels leave, of those that may be open, to the journal and other connections", low=8
    )
    tunnel_bytes_max: int = setting(256 * KIB, "buffered for one tunnel that does not take it", low=1)
    stall_s_max: float = setting(30.0, "how long a tunnel may take nothing before it is closed", low=0.01)
    populate_events_max: int = setting(10_000, "events that a new route is populated with", low=1)
    request_bytes_max: int = setting(1 * MIB, "longest request", low=KIB)
    request_timeout_s: float = setting(10.0, "how long a request may take to arrive", low=0.01)
    stop_timeout_s: float = setting(2.0, "how long tunnels may take to close when the node stops")
    origins: tuple[str, ...] = setting((), "other sites whose pages may use this node; '*': all")
    tokens_file: str = setting("", "a file with a name and a token on each line; empty: no tokens")
    allow: tuple[str, ...] = setting(
        (), "who may do what, as 'ann read plant/**'; nothing: everyone everything"
    )


MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL")


def _check_mechanisms(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise ValueError(
            f"{unknown or 'nothing'} is no list of mechanisms; there are {', '.join(MECHANISMS)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSettings(Section):
    """AMQP 1.0 clients: where they connect, who they are, and how much they may hold.

    >>> AmqpSettings(listen="127.0.0.1:5672").mechanisms
    ('ANONYMOUS',)
    """

    title: ClassVar[str] = "amqp"
    listen: str = setting("", "host:port to serve AMQP 1.0 on; empty: none", check=_check_host_port)
    mechanisms: tuple[str, ...] = setting(
        ("ANONYMOUS",), "SASL mechanisms on offer: ANONYMOUS, PLAIN, EXTERNAL", check=_check_mechanisms
    )
    users_file: str = setting("", "a file with a name and a password on each line, for PLAIN; empty: nobody")
    plain_needs_tls: bool = setting(True, "offer PLAIN, which shows the password, on TLS connections only")
    tls_cert_file: str = setting("", "the gateway's certificate (PEM); empty: no TLS")
    tls_key_file: str = setting("", "the certificate's private key (PEM)")
    tls_ca_file: str = setting(
        "", "who signs clients' certificates (PEM), for EXTERNAL; empty: none are asked for"
    )
    allow: tuple[str, ...] = setting(
        (), "who may do what, as 'ann read plant/**'; nothing: everyone everything"
    )
    connections_max: int = setting(1_024, "AMQP connections to one node", low=1)
    sessions_max: int = setting(256, "sessions of one connection", low=1, high=32_768)
    links_max: int = setting(1_024, "links of one connection", low=1)
    frame_bytes_max: int = setting(16 * KIB, "longest AMQP frame", low=512, high=16 * MIB)
    session_bytes_max: int = setting(
        16 * MIB, "sent on one session and not read yet: so many of the longest frames", low=KIB
    )
    message_bytes_max: int = setting(
        8 * MIB, "longest message, if limits.payload_bytes_max is not less; past it the link is closed", low=1
    )
    stream_bytes_min: int = setting(
        1 * MIB, "a longer message goes on while it is still arriving, where somebody takes streams", low=KIB
    )
    assembly_bytes_max: int = setting(
        64 * MIB, "messages of one connection that are still arriving; past it their links are closed", low=1
    )
    intake_bytes_max: int = setting(
        16 * MIB, "taken from one connection and without an outcome yet; then it waits", low=1
    )
    output_bytes_max: int = setting(1 * MIB, "waiting to be sent to one session; then its links wait", low=1)
    credit_events: int = setting(250, "messages that one sender may send ahead of what was read", low=1)
    unsettled_events_max: int = setting(4_000, "messages of one sender that have no outcome yet", low=1)
    relay_topics_max: int = setting(1_024, "topics that one sender without an address may have open", low=1)
    idle_s: float = setting(30.0, "how long a client may be silent before its connection is closed", low=0.1)
    hello_timeout_s: float = setting(10.0, "how long a client may take to say who it is", low=0.01)
    stop_timeout_s: float = setting(2.0, "how long links may take to close when the node stops")
