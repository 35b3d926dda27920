"""The sections of the configuration for what every node does: keep events, hand them out, recover them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from reknit.backoff import read_backoffs, read_codes
from reknit.batch_layout import COUNT_MAX
from reknit.config.settings import Section, setting
from reknit.frame import FRAME_BYTES_MAX
from reknit.topic import TOPIC_BYTES_MAX, Pattern, check_topic

SCHEMES = ("tcp", "tls")
KIB, MIB = 1 << 10, 1 << 20


def check_urls(urls: tuple[str, ...]) -> None:
    """Refuse what is no address to listen on or to connect to."""
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
    listen: tuple[str, ...] = setting(("tcp://127.0.0.1:7440",), "addresses to listen on", check=check_urls)


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
    dead_letters_bytes_max: int = setting(
        16_384 * MIB, "bytes of dead letters that wait on one node; 0: without limit"
    )
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
    caches: tuple[str, ...] = setting((), "further nodes to recover from, nearest first", check=check_urls)
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
        "stop_intake", "what happens at limits.dead_letters_max and dead_letters_bytes_max"
    )


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
