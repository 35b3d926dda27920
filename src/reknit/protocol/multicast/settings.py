"""Every limit and interval of a group. Units stand last in a name."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reknit.config import MulticastSettings


class SlowMember(StrEnum):
    """What happens when a member takes nothing for `slow_s` while senders wait for it."""

    BLOCK = "block"
    """Senders wait for it."""
    EVICT = "evict"
    """It is put out of the group."""
    DEAD_LETTER = "dead_letter"
    """What it did not take is dead-lettered for it, and it goes on after that."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one member. Members may differ: a sender tells the others its window.

    >>> GroupSettings(capacity_events=100).ack_events
    25
    """

    capacity_events: int = 16_384
    """The window: how many events of ours may be unacked."""
    window_bytes: int = 4 << 20
    """The window in bytes; less is used where the members' socket buffers are smaller."""
    batch_events_max: int = 4_096
    """A batch is sent at the latest with so many events…"""
    batch_bytes_max: int = 261_600
    """…or so many bytes, or as many pieces as one system call sends."""
    event_bytes_max: int = 256 << 10
    """The largest event; a window must hold it."""
    piece_bytes: int = 1_400
    """How much of a batch goes into one datagram."""
    buffer_bytes: int = 4 << 20
    """What our socket takes in before it loses datagrams; the transport knows better."""
    waiting_max: int = 10_000
    """How many sends may wait for room."""
    members_max: int = 256
    """How many members a view may have."""

    ask_s_max: float = 0.001
    """A gap is asked for after a random delay of at most this."""
    again_s_min: float = 0.005
    """The cool-down until a gap is asked for again, at least; it follows the time that answers take."""
    again_s_max: float = 0.25
    """The cool-down, at most."""
    ack_s: float = 0.02
    """An owed ack is sent after this, if not for its number before."""
    quiet_s: float = 0.01
    """A sender that was quiet for this long announces its last seq, then ever more rarely…"""
    quiet_s_max: float = 0.5
    """…but at least so often while acks are missing."""
    repeat_s: float = 0.1
    """What must be answered is said again after this."""
    departed_s: float = 10.0
    """What a departed sender left is exchanged for at most this long."""
    slow_member: SlowMember = SlowMember.BLOCK
    """What happens when a member holds up the senders."""
    slow_s: float = 10.0
    """How long no ack may come from the member that all wait for."""

    discover_s: float = 0.5
    """How long a joiner looks for a group before it founds one."""
    hello_s: float = 0.1
    """How often it says so."""
    gather_s: float = 0.02
    """Joins and leaves within this become one view."""
    beat_s: float = 0.5
    """How often a member shows that it is there."""
    suspect_s: float = 2.5
    """Not heard of for this long: suspected…"""
    confirm_s: float = 1.0
    """…and after this much longer, out."""
    leave_s: float = 2.0
    """How long a leaver waits for the view without it."""

    @classmethod
    def of(cls, config: MulticastSettings) -> GroupSettings:
        """As configured. Sizes of pieces and buffers come from the transport.

        >>> GroupSettings.of(MulticastSettings()) == GroupSettings()
        True
        """
        names = [name for name in cls.__struct_fields__ if name not in ("piece_bytes", "buffer_bytes")]
        values = {name: getattr(config, name) for name in names}
        return cls(**values | {"slow_member": SlowMember(config.slow_member)})

    @property
    def ack_events(self) -> int:
        """An ack is due after so many events: a quarter of the window."""
        return max(1, self.capacity_events // 4)
