"""Every limit and interval of a group."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reknit.config import MulticastSettings


class SlowMember(StrEnum):
    """The reaction to a member that acks nothing for `slow_s` while senders wait for it."""

    BLOCK = "block"
    """Senders wait for it."""
    EVICT = "evict"
    """It is evicted from the group."""
    DEAD_LETTER = "dead_letter"
    """The events that it did not take are dead-lettered for it, and it continues after them."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one member, flat as in the configuration. Members may differ: a sender announces its window size.

    >>> GroupSettings(capacity_events=100).ack_events
    25
    """

    capacity_events: int = 16_384
    """The window: how many of our events may be unacked."""
    window_bytes: int = 4 << 20
    """The window in bytes. Less is used if the members' socket buffers are smaller."""
    batch_events_max: int = 4_096
    """A batch has at most this many events…"""
    batch_bytes_max: int = 261_600
    """…and this many bytes, and as many pieces as one system call sends."""
    event_bytes_max: int = 256 << 10
    """The largest event. A window must hold it."""
    piece_bytes: int = 1_400
    """How many bytes of a batch go into one datagram."""
    buffer_bytes: int = 4 << 20
    """How much our socket buffers before it drops datagrams. The transport sets the real value."""
    waiting_max: int = 10_000
    """How many sends may wait for room."""
    members_max: int = 256
    """How many members a view may have."""

    ask_s_max: float = 0.001
    """A gap is requested after a random delay of at most this."""
    again_s_min: float = 0.005
    """The least back-off before a gap is requested again. It follows the time that answers take."""
    again_s_max: float = 0.25
    """The longest back-off before a gap is requested again."""
    ack_s: float = 0.02
    """An ack that is due is sent after this; earlier if many events are unacked."""
    quiet_s: float = 0.01
    """A sender that was quiet for this long announces its last seq, then more and more rarely…"""
    quiet_s_max: float = 0.5
    """…but at least this often while acks are missing."""
    repeat_s: float = 0.1
    """A message that needs an answer is repeated after this."""
    departed_s: float = 10.0
    """The survivors exchange the events of a departed sender for at most this long."""
    slow_member: SlowMember = SlowMember.BLOCK
    """The reaction to a member that holds up the senders."""
    slow_s: float = 10.0
    """A member that senders wait for is slow when it sends no ack for this long."""

    discover_s: float = 0.5
    """How long a joiner looks for a group before it creates one."""
    hello_s: float = 0.1
    """How often a joiner announces itself."""
    gather_s: float = 0.02
    """Joins and leaves within this time become one view."""
    beat_s: float = 0.5
    """How often a member sends a heartbeat."""
    suspect_s: float = 2.5
    """A member that was silent for this long is suspected…"""
    confirm_s: float = 1.0
    """…and evicted after this much longer."""
    leave_s: float = 2.0
    """How long a leaving member waits for the view without it."""

    @classmethod
    def of(cls, config: MulticastSettings) -> GroupSettings:
        """The settings as configured. The transport sets the sizes of pieces and buffers.

        >>> GroupSettings.of(MulticastSettings()) == GroupSettings()
        True
        """
        names = [name for name in cls.__struct_fields__ if name not in ("piece_bytes", "buffer_bytes")]
        values = {name: getattr(config, name) for name in names}
        return cls(**values | {"slow_member": SlowMember(config.slow_member)})

    @property
    def ack_events(self) -> int:
        """An ack is due after this many events: a quarter of the window."""
        return max(1, self.capacity_events // 4)
