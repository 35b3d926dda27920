"""Every setting and every limit, in one place.

A setting comes from its default, then the file (`$REKNIT_CONFIG`, or `./reknit.toml`), then the environment
(`REKNIT_LIMITS__FRAME_BYTES_MAX` is `limits.frame_bytes_max`), then flags; the last one wins. To add a
setting, add a line to its section: name with the unit last, type, default, doc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn
from urllib.parse import urlsplit

from reknit.backoff import read_backoffs, read_codes
from reknit.batch import COUNT_MAX
from reknit.errors import InvalidConfig
from reknit.frame import FRAME_BYTES_MAX
from reknit.settings import Section, Setting, gather, lookup, setting, settings_of, toml_table, toml_value
from reknit.topic import TOPIC_BYTES_MAX, Pattern, check_topic

__all__ = [
    "AmqpSettings",
    "AnycastSettings",
    "Config",
    "DispatchSettings",
    "HttpSettings",
    "JournalSettings",
    "LimitSettings",
    "LinkSettings",
    "MulticastSettings",
    "NodeSettings",
    "RecoverySettings",
    "RetentionSettings",
    "Row",
    "RpcSettings",
    "SecuritySettings",
    "TopicSettings",
    "TransportSettings",
    "describe",
    "load",
]

SCHEMES = ("tcp", "tls")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LINK_COST_MAX = 1_000_000


def _check_urls(urls: tuple[str, ...]) -> None:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname or parts.port is None or parts.path:
            raise ValueError(f"{url!r} is no address; write {' or '.join(SCHEMES)}://host:port")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(Section):
    """Who a node is and where it can be reached.

    >>> NodeSettings().listen
    ('tcp://127.0.0.1:7440',)
    """

    title: ClassVar[str] = "node"
    name: str = setting("", "the node's name in reports and dead letters; empty: the host's name")
    data_dir: Path = setting(Path("reknit-data"), "where the journal is kept")  # noqa: RUF009
    listen: tuple[str, ...] = setting(("tcp://127.0.0.1:7440",), "addresses to listen on", check=_check_urls)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """How events are kept.

    >>> JournalSettings(segment_bytes="64 MiB").segment_bytes
    67108864
    """

    title: ClassVar[str] = "journal"
    kind: Literal["disk", "memory"] = setting("disk", "on disk, or in memory until the node stops")
    segment_bytes: int = setting(256 * MIB, "size at which a new file of the log is begun", low=4 * KIB)
    tail_cache_bytes: int = setting(64 * MIB, "newest part of the log that is also kept in memory")
    index_interval_s: float = setting(5.0, "how often the index is saved; the rest is replayed on opening")
    index_bytes: int = setting(8 * MIB, "the index is saved sooner when so much is not in it")
    sync: bool = setting(True, "acknowledge only what has reached the disk, not just the operating system")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section):
    """What is removed, oldest first, when any of these is exceeded; 0 is without limit.

    >>> RetentionSettings().protect_unsettled
    True
    """

    title: ClassVar[str] = "retention"
    count_max: int = setting(0, "events to keep; 0: without limit")
    bytes_max: int = setting(0, "bytes to keep; 0: without limit")
    age_s_max: float = setting(0.0, "how long to keep an event; 0: without limit")
    protect_unsettled: bool = setting(
        True, "keep what a durable subscriber is still owed, over any limit above"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(Section):
    """How much there may be of everything. At a limit a publisher waits, or an event is dead-lettered.

    >>> LimitSettings().payload_bytes_max
    8388608
    """

    title: ClassVar[str] = "limits"
    frame_bytes_max: int = setting(
        16 * MIB, "longest frame on a connection", low=4 * KIB, high=FRAME_BYTES_MAX
    )
    payload_bytes_max: int = setting(8 * MIB, "longest payload of one event", low=1)
    topic_bytes_max: int = setting(TOPIC_BYTES_MAX, "longest topic, as utf-8", low=1, high=TOPIC_BYTES_MAX)
    batch_events_max: int = setting(COUNT_MAX, "events in one batch", low=1, high=COUNT_MAX)
    batch_bytes: int = setting(256 * KIB, "size at which single publishes are sent as a batch", low=1)
    publish_window_bytes: int = setting(16 * MIB, "sent by one publisher and not yet acknowledged", low=1)
    publish_waiting_max: int = setting(65_536, "publish calls that wait for room in the window")
    subscribe_credit_bytes: int = setting(
        8 * MIB, "sent to one subscription ahead of what it has taken", low=1
    )
    connections_max: int = setting(1_024, "connections to one node", low=1)
    subscriptions_max: int = setting(65_536, "subscriptions open on one node", low=1)
    sources_max: int = setting(1_000_000, "sources that one node remembers", low=1)
    unsettled_ranges_max: int = setting(65_536, "runs of unsettled events of one subscriber", low=1)
    intake_bytes_max: int = setting(64 * MIB, "taken in by one node and not yet durable", low=1)
    in_flight_bytes_max: int = setting(64 * MIB, "handed to one subscriber and not yet settled", low=1)
    queue_events_max: int = setting(0, "events that wait for one durable subscriber; 0: without limit")
    queue_bytes_max: int = setting(0, "bytes that wait for one durable subscriber; 0: without limit")
    queue_reserve_percent: int = setting(
        10, "part of a queue that is kept for events of priority CS5 and CS6", high=100
    )
    dead_letters_max: int = setting(10_000_000, "dead letters that wait on one node; 0: without limit")
    future_s_max: float = setting(
        600.0, "how far in the future an event's time may be before it is refused; 0: any"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings(Section):
    """How connections are kept.

    >>> TransportSettings().heartbeat_s
    5.0
    """

    title: ClassVar[str] = "transport"
    heartbeat_s: float = setting(
        5.0, "how long a connection is quiet before a peer is asked for a sign", low=0.01
    )
    peer_timeout_s: float = setting(15.0, "how long a peer may be silent before it counts as gone", low=0.01)
    hello_timeout_s: float = setting(5.0, "how long a new connection may take to introduce itself", low=0.01)
    reconnect_backoff_s_min: float = setting(0.1, "first wait before connecting again")
    reconnect_backoff_s_max: float = setting(10.0, "longest wait before connecting again")
    tls_cert_file: str = setting("", "this side's certificate (PEM); needed to listen on tls://")
    tls_key_file: str = setting("", "the certificate's private key (PEM)")
    tls_ca_file: str = setting("", "certificates to trust (PEM); empty: the system's")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(Section):
    """How missed events are found and recovered, and from where.

    >>> RecoverySettings(relays="tcp://10.0.0.7:7440=plant/**").relays
    ('tcp://10.0.0.7:7440=plant/**',)
    """

    title: ClassVar[str] = "recovery"
    caches: tuple[str, ...] = setting((), "further nodes to recover from, nearest first", check=_check_urls)
    relays: tuple[str, ...] = setting(
        (), "nodes whose events this one keeps too: address, or address=pattern"
    )
    history_events_max: int = setting(10_000, "newest events that a publisher or cache holds of a stream")
    history_bytes_max: int = setting(8 * MIB, "bytes that a publisher or cache holds of a stream")
    history_age_s_max: float = setting(0.0, "how long a publisher or cache holds an event; 0: any time")
    hold_events_max: int = setting(1_000_000, "events of one source held behind a gap", low=1)
    hold_bytes_max: int = setting(64 * MIB, "bytes held behind gaps in one subscription", low=1)
    ask_bytes_max: int = setting(4 * MIB, "what one answer of a cache may bring", low=1)
    ask_timeout_s: float = setting(
        1.0, "how long a cache may be silent before the next one is asked", low=0.001
    )
    again_s: float = setting(0.1, "when to ask once more for what all caches deny, before it is lost; 0: not")
    patience_s: float = setting(30.0, "how long a gap waits for caches that don't answer, before it is lost")
    heartbeat_s: float = setting(0.0, "how often a publisher tells its last seq when that changed; 0: never")
    query_s: float = setting(0.0, "how often a subscriber looks for a lost tail; 0: never")
    align_s: float = setting(0.0, "how often a node compares what it holds with its caches; 0: never")
    zenoh_listen: tuple[str, ...] = setting((), "Zenoh endpoints to listen on, such as tcp/127.0.0.1:7447")
    zenoh_connect: tuple[str, ...] = setting((), "Zenoh endpoints to connect to")
    zenoh_pattern: Pattern = setting(Pattern("**"), "the topics that are exchanged with Zenoh")  # noqa: RUF009


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings(Section):
    """How often an event is tried, and where it goes when that is of no use.

    >>> DispatchSettings().dead_letter_topic
    'reknit/dead-letters'
    """

    title: ClassVar[str] = "dispatch"
    retry_backoff_s_min: float = setting(0.1, "ceiling of the wait after the first failed attempt")
    retry_backoff_s_max: float = setting(30.0, "ceiling of the wait after any failed attempt")
    attempts_max: int = setting(0, "failed attempts before an event is dead-lettered; 0: until its ttl")
    never_retry: tuple[str, ...] = setting(
        ("INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"),
        "codes of failures that are dead-lettered at once",
        check=read_codes,
    )
    retry_codes: tuple[str, ...] = setting(
        (), "codes with a back-off of their own, as 'UNAVAILABLE=5:60' in seconds", check=read_backoffs
    )
    lease_s: float = setting(
        0.0, "how long a durable subscriber may hold an event without a word; 0: while it is connected"
    )
    dead_letter_topic: str = setting(
        "reknit/dead-letters", "where dead letters are published", check=check_topic
    )
    dead_letters_full: Literal["stop_intake", "drop_oldest"] = setting(
        "stop_intake", "what happens at limits.dead_letters_max"
    )


def _check_links(texts: tuple[str, ...]) -> None:
    for text in texts:
        url, _, cost = text.partition("=")
        _check_urls((url,))
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
        240_000, "size at which a batch is sent; less where datagrams are small", low=1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Section):
    """Who may do what on this node, and who this node or program is for others.

    >>> SecuritySettings(allow="ann publish plant/**, * subscribe plant/**").allow
    ('ann publish plant/**', '* subscribe plant/**')
    """

    title: ClassVar[str] = "security"
    token: str = setting("", "the token that this node or program shows to nodes")
    tokens_file: str = setting("", "a file with a name and a token on each line; empty: no tokens")
    allow: tuple[str, ...] = setting(
        (), "who may do what, as 'ann publish plant/**'; nothing: everyone everything"
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
    credit_events: int = setting(1_000, "messages that one sender may send ahead of what was read", low=1)
    unsettled_events_max: int = setting(4_000, "messages of one sender that have no outcome yet", low=1)
    relay_topics_max: int = setting(1_024, "topics that one sender without an address may have open", low=1)
    idle_s: float = setting(30.0, "how long a client may be silent before its connection is closed", low=0.1)
    hello_timeout_s: float = setting(10.0, "how long a client may take to say who it is", low=0.01)
    stop_timeout_s: float = setting(2.0, "how long links may take to close when the node stops")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Section):
    """A rule for some topics: a `[[topics]]` table in the file. The first that matches a topic counts.

    >>> TopicSettings(pattern="camera/**", durability="memory").pattern.matches("camera/1")
    True
    """

    title: ClassVar[str] = "topics[]"
    pattern: Pattern = setting(Pattern("**"), "the topics that this is about")  # noqa: RUF009
    durability: Literal["durable", "memory"] = setting("durable", "acknowledge when durable, or at once")
    distribution: Literal["journal", "multicast", "closest", "balanced"] = setting(
        "journal",
        "to every subscriber from the journal; or with outcomes to all, the closest, the least busy",
    )
    order: Literal["none", "source", "key"] = setting(
        "none", "whether later events of a source, or with the same key, wait for one that is tried again"
    )
    attempts_max: int = setting(0, "failed attempts before a dead letter; 0: as dispatch.attempts_max")
    ttl_ms: int = setting(0, "how long events that say nothing are worth delivering; 0: for ever")
    overflow: Literal["withhold", "refuse_newest", "drop_oldest"] = setting(
        "withhold", "at the limits of a subscriber's queue: publishers wait, or dead letters"
    )
    dead_letter_payload: bool = setting(True, "whether a dead letter has the event's payload")


SECTIONS: tuple[type[Section], ...] = (
    NodeSettings,
    JournalSettings,
    RetentionSettings,
    LimitSettings,
    TransportSettings,
    RecoverySettings,
    DispatchSettings,
    LinkSettings,
    AnycastSettings,
    HttpSettings,
    AmqpSettings,
    MulticastSettings,
    RpcSettings,
    SecuritySettings,
)
KNOWN: dict[str, Setting] = {f"{kind.title}.{one.key}": one for kind in SECTIONS for one in settings_of(kind)}
AT_MOST = (
    ("limits.payload_bytes_max", "limits.frame_bytes_max", 2 * KIB),  # header and topic have to fit too
    ("limits.batch_bytes", "limits.frame_bytes_max", 0),
    ("amqp.message_bytes_max", "amqp.assembly_bytes_max", 0),
    ("limits.batch_bytes", "limits.publish_window_bytes", 0),
    ("transport.heartbeat_s", "transport.peer_timeout_s", 0),
    ("transport.reconnect_backoff_s_min", "transport.reconnect_backoff_s_max", 0),
    ("dispatch.retry_backoff_s_min", "dispatch.retry_backoff_s_max", 0),
    ("links.beat_s", "links.timeout_s", 0),
    ("group.event_bytes_max", "group.window_bytes", 0),
    ("group.again_s_min", "group.again_s_max", 0),
    ("group.quiet_s", "group.quiet_s_max", 0),
)
"""The first of each row is at most the second less the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, frozen and checked. `Config()` is all defaults; `load` reads file and environment.

    >>> Config(journal=JournalSettings(kind="memory")).journal.kind
    'memory'
    """

    node: NodeSettings = NodeSettings()
    journal: JournalSettings = JournalSettings()
    retention: RetentionSettings = RetentionSettings()
    limits: LimitSettings = LimitSettings()
    transport: TransportSettings = TransportSettings()
    recovery: RecoverySettings = RecoverySettings()
    dispatch: DispatchSettings = DispatchSettings()
    links: LinkSettings = LinkSettings()
    anycast: AnycastSettings = AnycastSettings()
    http: HttpSettings = HttpSettings()
    amqp: AmqpSettings = AmqpSettings()
    group: MulticastSettings = MulticastSettings()
    rpc: RpcSettings = RpcSettings()
    security: SecuritySettings = SecuritySettings()
    topics: tuple[TopicSettings, ...] = ()
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for lower, upper, margin in AT_MOST:
            if self.get(lower) > self.get(upper) - margin:
                self._refuse([lower, upper], f"needs {lower} to be at most {upper} - {margin}")
        self._check_order()
        tls = self.transport
        for name, files in (("transport", tls), ("amqp", self.amqp)):
            if bool(files.tls_cert_file) != bool(files.tls_key_file):
                self._refuse([f"{name}.tls_cert_file", f"{name}.tls_key_file"], "needs both files or none")
        if not tls.tls_cert_file and any(url.startswith("tls:") for url in self.node.listen):
            self._refuse(["node.listen"], "needs transport.tls_cert_file for tls://")
        if self.links.edge and len(self.links.to) > 1:
            self._refuse(["links.to", "links.edge"], "needs one link at most for an edge")
        age_s_max = self.retention.age_s_max
        if self.http.listen and 0 < age_s_max < self.http.grace_s:
            self._refuse(
                ["retention.age_s_max", "http.grace_s"], "needs events to be kept for the grace period"
            )

    def _check_order(self) -> None:
        for at, rule in enumerate(self.topics):
            if rule.order != "none" and not (rule.ttl_ms or rule.attempts_max or self.dispatch.attempts_max):
                why = "is ordered and needs ttl_ms or attempts_max, so that no event holds up others for ever"
                raise InvalidConfig(f"topics[{at}].order", dict(self.origins).get("topics", "code"), why)

    def _refuse(self, names: list[str], why: str) -> NoReturn:
        """Blame the first that somebody has set."""
        name = next((name for name in names if self.origin(name) != "default"), names[0])
        values = ", ".join(f"{name} = {toml_value(self.get(name))}" for name in names)
        raise InvalidConfig(name, self.origin(name), f"{why}; now {values}")

    def get(self, name: str) -> Any:
        """The value of a setting by its full name.

        >>> Config().get("journal.kind")
        'disk'
        """
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)

    def origin(self, name: str) -> str:
        """Where a setting's value came from: 'default', 'code', a file, a variable or 'flag'.

        >>> load(environ={"REKNIT_JOURNAL__SYNC": "false"}).origin("journal.sync")
        'REKNIT_JOURNAL__SYNC'
        """
        return dict(self.origins).get(name, "default" if self.get(name) == KNOWN[name].default else "code")

    def topic(self, topic: str) -> TopicSettings:
        """The rule for a topic: the first that matches, or the defaults.

        >>> Config(topics=(TopicSettings(pattern="a/*", durability="memory"),)).topic("a/b").durability
        'memory'
        """
        return next((rule for rule in self.topics if rule.pattern.matches(topic)), _NO_RULE)

    def to_toml(self) -> str:
        """A file with every setting and its doc, which `load` reads back.

        >>> Config().to_toml().splitlines()[-1]
        'allow = []'
        """
        tables = [(f"[{kind.title}]", getattr(self, kind.title)) for kind in SECTIONS]
        tables += [("[[topics]]", rule) for rule in self.topics]
        return "\n".join(f"{header}\n{toml_table(section)}" for header, section in tables)


_NO_RULE = TopicSettings()


class Row(NamedTuple):
    """A setting, for people: values are written as in the file.

    >>> describe()[0].type
    'text'
    """

    name: str
    value: str
    default: str
    origin: str
    type: str
    unit: str
    doc: str


def describe(config: Config | None = None) -> list[Row]:
    """Every setting with its value, default, origin, type, unit and doc, in the order of this file.

    >>> [row.doc for row in describe() if row.name == "limits.batch_bytes"]
    ['size at which single publishes are sent as a batch']
    """
    config = config or Config()
    rows = [_row(name, config.get(name), one, config.origin(name)) for name, one in KNOWN.items()]
    rules = {f"topics[{at}]": rule for at, rule in enumerate(config.topics)} or {"topics[]": _NO_RULE}
    origin = dict(config.origins).get("topics", "code" if config.topics else "default")
    for title, rule in rules.items():
        found = [(one, getattr(rule, one.key)) for one in settings_of(TopicSettings)]
        rows += [_row(f"{title}.{one.key}", value, one, origin) for one, value in found]
    return rows


def load(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Read the file, the environment (the process's unless given) and overrides by full name (None: not set).

    >>> load(environ={}, overrides={"limits.batch_bytes": "64 KiB", "node.name": None}).limits.batch_bytes
    65536
    >>> load(environ={}, overrides={"journal.kin": 1})
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: setting journal.kin (from flag) is unknown; did you mean journal.kind?
    """
    given = gather(path, os.environ if environ is None else environ, overrides or {})
    values: dict[str, dict[str, Any]] = {kind.title: {} for kind in SECTIONS}
    topics: tuple[TopicSettings, ...] = ()
    for name, raw, origin in given:
        if name == "topics":
            topics = tuple(_rules(raw, origin))
        else:
            section, _, key = name.partition(".")
            values[section][key] = lookup(name, KNOWN, name, origin).read(raw, name, origin)
    sections: dict[str, Any] = {kind.title: kind(**values[kind.title]) for kind in SECTIONS}
    return Config(**sections, topics=topics, origins=tuple((name, origin) for name, _, origin in given))


def _rules(raw: object, origin: str) -> Iterator[TopicSettings]:
    if not isinstance(raw, list | tuple) or not all(isinstance(table, dict) for table in raw):
        raise InvalidConfig("topics", origin, "must be [[topics]] tables with a pattern each")
    known = {one.key: one for one in settings_of(TopicSettings)}
    for at, table in enumerate(raw):
        read: dict[str, Any] = {}
        for key, value in table.items():
            name = f"topics[{at}].{key}"
            read[key] = lookup(key, known, name, origin).read(value, name, origin)
        yield TopicSettings(**read)


def _row(name: str, value: object, one: Setting, origin: str) -> Row:
    return Row(name, toml_value(value), toml_value(one.default), origin, one.type_text, one.unit, one.doc)
