"""What the intake is told beside messages of publishers, and its effect on refused events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reknit.batch import Batch
from reknit.protocol.machine import Peer
from reknit.protocol.publish.admission import Refusal


class StopIntake(msgspec.Struct, frozen=True):
    """The journal can't take more for now, and why."""

    text: str


class ResumeIntake(msgspec.Struct, frozen=True):
    """The journal takes events again."""


class QueuesFull(msgspec.Struct, frozen=True):
    """Subscribers' queues are full: events for which `refuses` gives a text stay at their publisher.

    None: no queue is full.
    """

    refuses: Callable[[str, int], str] | None
    is_less: bool = True
    """Whether publishers that wait may try again."""


class LettersFull(msgspec.Struct, frozen=True):
    """Dead letters fill their store: events for whose peer and topic `refuses` gives a text stay at their publisher.

    None: nobody has to wait.
    """

    refuses: Callable[[Peer, str], str] | None
    is_less: bool = True
    """Whether publishers that wait may try again."""


class RefusedBatch(msgspec.Struct, frozen=True):
    """These events were not taken, and their publisher is told: make dead letters of them, if they are stored."""

    peer: Peer
    batch: Batch
    refusal: Refusal
    attempts: int = 0
    """How often a subscriber tried them: one that recovered them elsewhere may reject them, too."""


class StoredForLater(msgspec.Struct, frozen=True):
    """These events were appended, durable with the number: they are to be published on another topic later."""

    number: int
    batch: Batch
