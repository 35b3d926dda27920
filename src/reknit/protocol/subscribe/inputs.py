"""What a subscriber is told and what it wants done, as values."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.wire.messages import Lost, Message, Revoked, Settled, Subscribed, Unsubscribed

NODE: Final = "node"
"""The node that this subscription is at, as a cache: the nearest one."""


class State(Enum):
    """Where a subscription stands."""

    APART = "apart"
    ASKING = "asking"
    LIVE = "live"
    ENDED = "ended"


class Connected(msgspec.Struct, frozen=True):
    """A connection stands (again), to a journal with this epoch."""

    epoch: str


class Disconnected(msgspec.Struct, frozen=True):
    """The connection is gone."""


class Delivered(msgspec.Struct, frozen=True):
    """Batches came for this subscription; `position` is the journal's place after them."""

    batches: list[Batch]
    position: int
    attempt: int = 1
    counted: bool = True
    ordered_to: int = 0


class SendMessage(msgspec.Struct, frozen=True):
    """Say this to the node."""

    message: Message


class Hand(msgspec.Struct, frozen=True):
    """Give these batches to the application, in this order."""

    batches: list[Batch]


class Report(msgspec.Struct, frozen=True):
    """Tell the application that events are lost to it, and why."""

    topic: str
    source: bytes
    start: int
    stop: int
    reason: str


class Opened(msgspec.Struct, frozen=True):
    """The node confirmed the subscription."""

    resumed: bool


class Ended(msgspec.Struct, frozen=True):
    """The node ended the subscription; code 0 if that was asked for."""

    code: int
    text: str


class Booked(msgspec.Struct, frozen=True):
    """Outcomes up to this number are booked."""

    number: int


Input = (
    Connected | Disconnected | Delivered | Subscribed | Unsubscribed | Settled | Lost | Revoked
    | recovering.Input
)  # fmt: skip
Effect = SendMessage | Hand | Report | Opened | Ended | Booked | AskCache | recovering.SurveyCache
