"""The inputs and effects of a subscriber, and the states of a subscription with their transitions."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from reknit.batch import Batch
from reknit.protocol.effects import SendToNode
from reknit.protocol.machine import Connected, Disconnected
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.queue_order import QueueOrder
from reknit.wire.messages import Lost, Revoked, Settled, Start, Subscribed, Unsubscribed

NODE: Final = "node"
"""The node of this subscription, as a cache: the nearest one."""


class SubscriptionOptions(msgspec.Struct, frozen=True):
    """The options of one subscription, as the application gave them."""

    sub: int
    pattern: str
    name: str = ""
    """Empty unless the subscription is durable."""
    start: Start = Start()
    credit_bytes: int = 8 << 20
    is_cache: bool = False
    takes_streams: bool = False
    confirms_losses: bool = True
    """Whether a durable subscriber confirms a loss when it is told of it, and not when the application says so."""
    queue: str = ""
    """The queue of which it is a member."""
    process: bytes = b""
    """Names the process that runs this; empty if it does not crash with its events."""
    order: QueueOrder = ""
    """What its queue keeps in order."""


class SubscriberState(Enum):
    """The state of a subscription at its node."""

    DISCONNECTED = "disconnected"
    ASKING = "asking"
    """`Subscribe` was sent, and is not confirmed yet."""
    LIVE = "live"
    ENDED = "ended"
    """The node ended the subscription."""


class Delivered(msgspec.Struct, frozen=True):
    """Batches arrived for this subscription; `position` is the journal's position after them."""

    batches: list[Batch]
    position: int
    attempt: int = 1
    counted: bool = True
    """Whether they use credit."""
    ordered_to: int = 0
    """Of an ordered unit: the seq before which it ends."""


class DeliverBatches(msgspec.Struct, frozen=True):
    """Deliver these batches to the application, in this order."""

    batches: list[Batch]


class LossReport(msgspec.Struct, frozen=True):
    """Tell the application that events are lost to it, and why."""

    topic: str
    source: bytes
    start: int
    stop: int
    reason: str


class SubscriptionOpened(msgspec.Struct, frozen=True):
    """The node confirmed the subscription."""

    resumed: bool


class SubscriptionEnded(msgspec.Struct, frozen=True):
    """The node ended the subscription; code 0 if that was requested."""

    code: int
    text: str


class OutcomesStored(msgspec.Struct, frozen=True):
    """The node stored all outcomes up to this number."""

    number: int


Input = (
    Connected | Disconnected | Delivered | Subscribed | Unsubscribed | Settled | Lost | Revoked
    | recovering.Input
)  # fmt: skip
Effect = (
    SendToNode | DeliverBatches | LossReport | SubscriptionOpened | SubscriptionEnded | OutcomesStored | AskCache
    | recovering.SurveyCache
)  # fmt: skip

_State = SubscriberState
TRANSITIONS: Final[dict[tuple[SubscriberState, type[Any]], SubscriberState]] = {
    (_State.DISCONNECTED, Connected): _State.ASKING,
    (_State.ASKING, Subscribed): _State.LIVE,
    (_State.LIVE, Subscribed): _State.LIVE,
    (_State.ASKING, Disconnected): _State.DISCONNECTED,
    (_State.LIVE, Disconnected): _State.DISCONNECTED,
    (_State.DISCONNECTED, Disconnected): _State.DISCONNECTED,
    (_State.DISCONNECTED, Unsubscribed): _State.ENDED,
    (_State.ASKING, Unsubscribed): _State.ENDED,
    (_State.LIVE, Unsubscribed): _State.ENDED,
    (_State.ENDED, Unsubscribed): _State.ENDED,
    (_State.ENDED, Disconnected): _State.ENDED,
}
"""The inputs that change the state. All others are taken in every state: they are about events."""
WITHOUT_EFFECT: Final[frozenset[tuple[SubscriberState, type[Any]]]] = frozenset(
    [
        (_State.ENDED, Connected),
        (_State.ENDED, Subscribed),
        (_State.DISCONNECTED, Subscribed),  # it crossed the end of the connection
    ]
)
"""Inputs that are legal and change nothing. Any other one that is not in `TRANSITIONS` raises."""
