"""A subscriber's disposition of events that were delivered to it."""

from __future__ import annotations

from typing import NamedTuple

from reknit.outcome import Outcome


class Disposition(NamedTuple):
    """The outcome of an attempt, with its reason."""

    outcome: Outcome
    code: int = 0
    text: str = ""
    delay_s: float = 0.0
    """How long to wait before the next attempt, at least."""
    attempt: int = 0
    """The number of the attempt that this is about; 0: the present one."""
