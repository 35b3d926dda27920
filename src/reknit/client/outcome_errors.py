"""The errors that a publisher gets for events that were not accepted."""

from __future__ import annotations

from typing import Final

from reknit.errors import Modified, Rejected, Released, Undelivered
from reknit.outcome import Outcome
from reknit.wire.outcomes import RangeOutcome

ERRORS: Final[dict[int, type[Undelivered]]] = {
    Outcome.REJECTED: Rejected,
    Outcome.MODIFIED: Modified,
    Outcome.RELEASED: Released,
}
"""The error for each outcome but ACCEPTED, the worst first."""


def undelivered(topic: str, source: bytes, fate: RangeOutcome) -> Undelivered:
    """The error for an outcome that is not ACCEPTED."""
    return ERRORS[fate.outcome](
        topic, source.hex(), fate.start, fate.stop, fate.text, fate.code, fate.node, fate.path, fate.attempts
    )
