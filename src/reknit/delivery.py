"""How a batch was delivered to a subscriber: which attempt it is, and where its outcomes go."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Any, Final

import msgspec

__all__ = ["FIRST", "RECOVERED", "Delivery"]


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One delivery of a batch. The batch itself, its events and bytes, is the same in every delivery.

    >>> Delivery(attempt=2).counted, FIRST.attempt, RECOVERED.counted
    (True, 1, False)
    """

    attempt: int = 1
    """1 on the first delivery, more on a repeated one."""
    counted: bool = True
    """Whether the batch used up the subscriber's credit. A recovered or repeated batch does not."""
    ordered_to: int = 0
    """On an ordered topic: a subscriber that gives back one event gives back everything after it, up to this seq.
    0 on a topic without order."""
    settle: Callable[..., Any] | None = None
    """Takes the batch, a range of its seqs and their outcome to the subscription. None outside a subscription."""
    stream: AsyncIterable[bytes] | None = None
    """The payload, where it comes in chunks."""


FIRST: Final = Delivery()
"""The first attempt, without a subscription."""
RECOVERED: Final = Delivery(counted=False)
"""A batch that came from a cache."""
