"""How a batch was delivered to a subscriber: which attempt it is, and where its outcomes go."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Final

import msgspec

from reknit.errors import LocalError
from reknit.outcome import Code, Outcome

__all__ = ["FIRST", "RECOVERED", "Delivery", "Settleable"]


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


def code_of(code: Code | int | str) -> int:
    """A google.rpc code, given as a number or by its name.

    >>> code_of(3), code_of("INVALID_ARGUMENT")
    (3, 3)
    >>> code_of("BAD")
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid code 'BAD': pass the name of a google.rpc code, such as 'INVALID_ARGUMENT'.
    """
    if isinstance(code, int):
        return int(code)
    try:
        return int(Code[code])
    except KeyError:
        text = "pass the name of a google.rpc code, such as 'INVALID_ARGUMENT'."
        raise LocalError(f"Invalid code {code!r}: {text}") from None


class Settleable:
    """What was delivered and gets an outcome: one event, or all events of a batch."""

    __slots__ = ()

    def accept(self) -> Awaitable[None]:
        """It was processed: do not deliver it to this subscriber again."""
        return self._settle(Outcome.ACCEPTED)

    def release(self) -> Awaitable[None]:
        """It was not processed: try the next path, without counting an attempt."""
        return self._settle(Outcome.RELEASED)

    def fail(self, delay_s: float = 0.0, code: Code | int | str = 0, text: str = "") -> Awaitable[None]:
        """Processing failed: deliver it again after a back-off of at least `delay_s`.

        The configuration may give a google.rpc code its own back-off, or exclude it from retries.
        """
        return self._settle(Outcome.FAILED, delay_s=delay_s, code=code_of(code), text=text)

    def in_progress(self) -> Awaitable[None]:
        """Processing takes longer: renew its lease."""
        return self._settle(Outcome.RECEIVED)

    def reject(self, code: Code | int | str = Code.INVALID_ARGUMENT, text: str = "") -> Awaitable[None]:
        """It can never be processed: dead-letter it with this code, a number or a name, and this text."""
        return self._settle(Outcome.REJECTED, code=code_of(code), text=text)

    def _settle(self, outcome: Outcome, **details: Any) -> Awaitable[None]:
        raise NotImplementedError


FIRST: Final = Delivery()
"""The first attempt, without a subscription."""
RECOVERED: Final = Delivery(counted=False)
"""A batch that came from a cache."""
