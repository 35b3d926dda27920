"""`[group]`: reliable multicast among programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB

__all__ = ["MulticastSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastSettings(Section):
    """Groups: reliable multicast among programs. Each member has its own settings, and they may differ.

    It has more than 15 fields because each is a setting of this section.

    >>> MulticastSettings(slow_member="evict").slow_member
    'evict'
    """

    title: ClassVar[str] = "group"
    address: str = setting(
        "239.75.78.84:7475", "multicast address and port; empty: members are found by seeds only"
    )
    interface: str = setting("127.0.0.1", "address of the network interface to use")
    port: int = setting(0, "our own port; 0: any free port", high=65_535)
    hops_max: int = setting(1, "routers that a datagram may pass", high=255)
    receive_buffer_bytes: int = setting(
        4 * MIB, "size of the kernel's receive buffer, between two reads", low=64 * KIB
    )
    tcp: bool = setting(False, "use TCP connections instead of datagrams; needs seeds")
    write_buffer_bytes: int = setting(8 * MIB, "bytes that may wait for one member over TCP", low=64 * KIB)
    seeds: tuple[str, ...] = setting((), "addresses of members that introduce the others, as HOST:PORT")
    key_file: str = setting(
        "",
        "a file with the keys that the members share: the first is used, all are accepted; empty: those of the "
        "environment variable REKNIT_GROUP_KEY, or none",
    )
    capacity_events: int = setting(16_384, "the window: our events that may be unacknowledged", low=1)
    window_bytes: int = setting(
        4 * MIB, "the window in bytes; less where socket buffers are smaller", low=64 * KIB
    )
    batch_events_max: int = setting(4_096, "events at which a batch is sent", low=1)
    batch_bytes_max: int = setting(
        261_600, "size at which a batch is sent; less where datagrams are small", low=1
    )
    event_bytes_max: int = setting(256 * KIB, "the largest event; the window must hold it", low=1)
    waiting_max: int = setting(10_000, "sends that may wait for room in the window")
    members_max: int = setting(256, "members that a view may have", low=1)
    ask_s_max: float = setting(0.001, "longest random delay before a gap is requested")
    again_s_min: float = setting(0.005, "shortest wait before a gap is requested again")
    again_s_max: float = setting(0.25, "longest wait before a gap is requested again")
    ack_s: float = setting(0.02, "an owed ack is sent after this time at the latest")
    quiet_s: float = setting(0.01, "a sender that was quiet for this long announces its last seq")
    quiet_s_max: float = setting(0.5, "longest time between these announcements, while acks are missing")
    repeat_s: float = setting(0.1, "a message without its answer is sent again after this time")
    departed_s: float = setting(10.0, "how long survivors exchange the events of a departed sender, at most")
    slow_member: Literal["block", "evict", "dead_letter"] = setting(
        "block", "what happens when a member takes nothing for `slow_s` while senders wait for it"
    )
    slow_s: float = setting(10.0, "how long a member that senders wait for may send no ack")
    discover_s: float = setting(0.5, "how long a joiner looks for a group before it creates one")
    hello_s: float = setting(0.1, "how often a joiner announces itself")
    gather_s: float = setting(0.02, "joins and leaves within this time become one view")
    beat_s: float = setting(0.5, "how often a member sends a heartbeat")
    suspect_s: float = setting(2.5, "a member that was silent for this long is suspected")
    confirm_s: float = setting(1.0, "a suspected member is removed after this much more time")
    leave_s: float = setting(2.0, "how long a leaver waits for the view without it")
    skip_s: float = setting(
        2.0, "how long a node waits for a member to bring missed events before they are lost"
    )
