"""Tell a client the outcome of its messages."""

from __future__ import annotations

from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.conditions import modified_of, rejected_of
from reknit.gateway.amqp.deliveries import Handle
from reknit.node.anycast.gateway_api import Result
from reknit.outcome import Outcome


def settle(handles: list[Handle], result: Result) -> None:
    """Settle deliveries with the outcome of their events. RECEIVED does not settle: the outcome follows."""
    match result.outcome:
        case Outcome.ACCEPTED:
            deliveries.accept(handles)
        case Outcome.RELEASED:
            for handle in handles:
                deliveries.release(handle)
        case Outcome.REJECTED:
            for handle in handles:
                deliveries.reject(handle, *rejected_of(result.code, result.text))
        case Outcome.RECEIVED:
            for handle in handles:
                deliveries.received(handle)
        case _:
            for handle in handles:
                deliveries.modify(handle, modified_of(result.text))
