"""Dispositions: a client's statements about messages, as outcomes, joined to ranges as long as possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

from reknit.batch import Batch
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.attach import DefaultOutcome
from reknit.gateway.amqp.codec.conditions import Modified, code_of, modified_text, rejected_text
from reknit.gateway.amqp.deliveries import Handle
from reknit.outcome import Code, Outcome

UNDELIVERABLE = "the receiver marked it as undeliverable here"
LinkDisposition = tuple[Outcome, int, str]
"""An outcome, a google.rpc code and a text."""
ACCEPTED: LinkDisposition = (Outcome.ACCEPTED, 0, "")
RELEASED: LinkDisposition = (Outcome.RELEASED, 0, "")
RECEIVED: LinkDisposition = (Outcome.RECEIVED, 0, "")
Settle = Callable[[Batch, int, int, Outcome, int, str], None]


class DispositionRun:
    """The same disposition for events `[start, stop)` of a batch."""

    __slots__ = ("batch", "disposition", "start", "stop")

    def __init__(self, batch: Batch, start: int, stop: int, disposition: LinkDisposition) -> None:
        self.batch, self.start, self.stop, self.disposition = batch, start, stop, disposition


class UnsettledMessages:
    """The messages of one link that the client has and has not settled.

    Dispositions of consecutive events are joined: `settle` is called once for a range of events. `on_disposition` is
    called when there is something to flush, `on_stream_settled` when the client settles a message before its end.
    """

    def __init__(
        self,
        settle: Settle,
        *,
        is_anycast: bool,
        default_outcome: DefaultOutcome | None,
        on_disposition: Callable[[], None],
        on_stream_settled: Callable[[], None],
    ) -> None:
        self._settle = settle
        self._is_anycast = is_anycast
        self._default_outcome = default_outcome
        self._on_disposition = on_disposition
        self._on_stream_settled = on_stream_settled
        self._events: dict[Handle, tuple[Batch, int]] = {}
        self._stream: Handle | None = None
        """The message that is still being sent."""
        self._run: DispositionRun | None = None

    def __len__(self) -> int:
        return len(self._events)

    def sent(self, handles: list[Handle], batch: Batch, start: int, stop: int) -> None:
        """Events `[start, stop)` of a batch were sent."""
        pairs = zip(repeat(batch), range(start, stop), strict=False)
        self._events.update(zip(handles, pairs, strict=False))

    def stream_began(self, delivery: Handle, batch: Batch) -> None:
        """The first bytes of a message were sent."""
        self._events[delivery] = (batch, batch.first)
        self._stream = delivery

    def stream_ended(self) -> None:
        """The last bytes of the message were sent."""
        self._stream = None

    def remove(self, delivery: Handle) -> None:
        """The delivery was aborted, or settled by us."""
        self._events.pop(delivery, None)
        self._stream = None if self._stream == delivery else self._stream

    def clear(self) -> None:
        """The link is gone, and its handles are invalid."""
        self._events.clear()

    def delivered(self, delivery: Handle) -> None:
        """The client changed the state of a delivery. Called once for every message, so it makes few calls itself."""
        found = self._events.get(delivery)
        if found is None:
            return
        batch, seq = found
        state = deliveries.state_of(delivery)
        if state == deliveries.ACCEPTED:
            run = self._run
            if run is not None and run.stop == seq and run.batch is batch and run.disposition is ACCEPTED:
                run.stop = seq + 1
            else:
                self.add(batch, seq, seq + 1, ACCEPTED)
        elif state == deliveries.RECEIVED and not deliveries.is_settled(delivery):
            self.add(batch, seq, seq + 1, RECEIVED)
            return
        elif state or deliveries.is_settled(delivery):
            self.add(
                batch, seq, seq + 1, disposition_of(delivery, state, self._default_outcome, self._is_anycast)
            )
        else:
            return
        del self._events[delivery]
        if self._stream is not None and self._stream == delivery:
            self._stream = None
            self._on_stream_settled()
        else:
            deliveries.settle(delivery)

    def add(self, batch: Batch, start: int, stop: int, disposition: LinkDisposition) -> None:
        """Events `[start, stop)` of a batch have this disposition."""
        run = self._run
        if run is not None and run.batch is batch and run.stop == start and run.disposition == disposition:
            run.stop = stop
            return
        self.flush()
        self._run = DispositionRun(batch, start, stop, disposition)
        self._on_disposition()

    def flush(self) -> None:
        """Settle the events whose dispositions have gathered."""
        run, self._run = self._run, None
        if run is not None:
            self._settle(run.batch, run.start, run.stop, *run.disposition)


def disposition_of(
    delivery: Handle, state: int, default_outcome: DefaultOutcome | None, is_anycast: bool
) -> LinkDisposition:
    """The disposition of a delivery that the client settled, or gave a final state."""
    if state == deliveries.RELEASED:
        return RELEASED
    if state == deliveries.REJECTED:
        return _rejected(*deliveries.remote_condition(delivery))
    if state == deliveries.MODIFIED:
        return _modified(deliveries.remote_modified(delivery), is_anycast)
    return _default(default_outcome, is_anycast)


def _default(outcome: DefaultOutcome | None, is_anycast: bool) -> LinkDisposition:
    """The disposition of a message that the client settled without one. It has not said that it processed it, unless
    that is what it asked for when it attached the link."""
    if outcome is None:
        return _modified(Modified(), is_anycast)
    match outcome.name:
        case "accepted":
            return ACCEPTED
        case "released":
            return RELEASED
        case "rejected":
            return _rejected(*outcome.condition)
        case _:
            return _modified(outcome.modified, is_anycast)


def _rejected(name: str, text: str) -> LinkDisposition:
    return Outcome.REJECTED, int(code_of(name)), rejected_text(name, text)


def _modified(fields: Modified, is_anycast: bool) -> LinkDisposition:
    if is_anycast:
        return Outcome.MODIFIED, 0, modified_text(fields)
    if fields.is_undeliverable:  # the client asks not to get it again
        return Outcome.REJECTED, int(Code.FAILED_PRECONDITION), UNDELIVERABLE
    return (Outcome.FAILED if fields.is_failed else Outcome.RELEASED), 0, ""
