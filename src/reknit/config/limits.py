"""`[limits]`: the limits on memory, sizes and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.batch_layout import COUNT_MAX
from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB
from reknit.frame import FRAME_BYTES_MAX
from reknit.topic import TOPIC_BYTES_MAX

__all__ = ["LimitSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(Section):
    """Limits on memory, sizes and counts. At a limit a publisher waits, or an event is dead-lettered.

    It has more than 15 fields because each is a setting of this section.

    >>> LimitSettings().payload_bytes_max
    8388608
    """

    title: ClassVar[str] = "limits"
    frame_bytes_max: int = setting(
        16 * MIB, "longest frame on a connection", low=4 * KIB, high=FRAME_BYTES_MAX
    )
    payload_bytes_max: int = setting(8 * MIB, "longest payload of one event", low=1)
    headers_bytes_max: int = setting(64 * KIB, "longest key and headers of one event that a client publishes")
    topic_bytes_max: int = setting(TOPIC_BYTES_MAX, "longest topic, in UTF-8", low=1, high=TOPIC_BYTES_MAX)
    batch_events_max: int = setting(COUNT_MAX, "events in one batch", low=1, high=COUNT_MAX)
    batch_bytes: int = setting(256 * KIB, "size at which single publishes are sent as a batch", low=1)
    publish_window_bytes: int = setting(16 * MIB, "sent by one publisher and not yet acknowledged", low=1)
    publish_waiting_max: int = setting(65_536, "publish calls that wait for room in the window")
    subscribe_credit_bytes: int = setting(8 * MIB, "sent to one subscription and not yet taken by it", low=1)
    connections_max: int = setting(1_024, "connections to one node", low=1)
    peer_bytes_max: int = setting(
        64 * MIB, "sent to one peer and not yet taken by it, or received from it in part", low=64 * KIB
    )
    peers_bytes_max: int = setting(1_024 * MIB, "the same for all peers of one node together", low=64 * KIB)
    anonymous_bytes_max: int = setting(
        64 * MIB, "the same for all peers together that have proven no name; one gets a quarter", low=64 * KIB
    )
    subscriptions_max: int = setting(65_536, "subscriptions open on one node", low=1)
    sources_max: int = setting(1_000_000, "sources that one node remembers", low=1)
    metric_rows_max: int = setting(
        2_000, "topics, and rows of the ledger, with metrics of their own; the others are summed up", low=1
    )
    unsettled_ranges_max: int = setting(65_536, "ranges of unsettled events of one subscriber", low=1)
    intake_bytes_max: int = setting(64 * MIB, "received by one node and not yet durable", low=1)
    in_flight_bytes_max: int = setting(64 * MIB, "delivered to one subscriber and not yet settled", low=1)
    queue_events_max: int = setting(0, "events queued for one durable subscriber; 0: no limit")
    queue_bytes_max: int = setting(0, "bytes queued for one durable subscriber; 0: no limit")
    queue_reserve_percent: int = setting(
        10, "part of a queue that is reserved for events of priority CS5 and CS6", high=100
    )
    dead_letters_max: int = setting(10_000_000, "dead letters that wait on one node; 0: no limit")
    dead_letters_bytes_max: int = setting(
        16_384 * MIB, "bytes of dead letters that wait on one node; 0: no limit"
    )
    scheduled_max: int = setting(
        1_000_000, "events that wait on one node for the time at which they are published; 0: no limit"
    )
    future_s_max: float = setting(
        600.0, "how far in the future an event's time may be before it is refused; 0: any"
    )
