"""Events that a subscriber recovered, here or elsewhere, and gave up: they become dead letters of this node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reknit.batch import Batch
from reknit.errors import MalformedFrame
from reknit.outcome import CODE_OF, Code, Reason
from reknit.protocol.machine import Peer
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.inputs import RefusedBatch
from reknit.protocol.recovery.cache_inputs import Dismiss
from reknit.wire.messages import Settle

SUBSCRIBER_REASONS: Final = (Reason.REJECTED, Reason.ATTEMPTS_EXHAUSTED, Reason.EXPIRED)
"""Why a subscriber may give up an event that it recovered."""


def rejections(message: Settle, peer: Peer, gets: Callable[[str], bool]) -> list[RefusedBatch | Dismiss]:
    """The batches that a peer rejects, as effects. `gets` says whether its subscription gets a topic's events.

    A batch or a reason that is not valid ends the list with `Dismiss`.
    """
    effects: list[RefusedBatch | Dismiss] = []
    for one in message.rejected:
        try:
            batch, reason = Batch.parse(one.data), _reason(one.reason)
            code = Code(one.code or CODE_OF[reason])
        except (MalformedFrame, ValueError) as error:
            return [*effects, Dismiss(peer, Code.INVALID_ARGUMENT, str(error))]
        if gets(batch.topic):
            refusal = Refusal(code, one.text or "rejected by the subscriber", reason)
            effects.append(RefusedBatch(peer, batch, refusal, one.attempts))
    return effects


def _reason(text: str) -> Reason:
    """Why a subscriber gave up events. Raises ValueError."""
    if text not in SUBSCRIBER_REASONS:
        raise ValueError(f"{text!r} is not a reason that a subscriber may give for a dead letter")
    return Reason(text)
