"""An event: one payload of a batch, known by (source, seq)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.errors import LocalError
from reknit.outcome import Code, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from reknit.batch import Batch
    from reknit.envelope.attributes import Attributes

FLAG_STREAM: Final = 2
"""In a batch's head: the one event's payload is not in it, it comes in pieces."""

SIZE_COLUMN: Final = "size"
"""Of a stream: how long it will be, where its publisher knows that before."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. It holds its batch and reads everything but the payload from there, so that it stays light."""

    batch: Batch
    seq: int
    payload: bytes

    @property
    def topic(self) -> str:
        return self.batch.head.topic

    @property
    def source(self) -> bytes:
        return self.batch.head.source

    @property
    def id(self) -> str:
        """The event id as text: source and seq.

        >>> from reknit.batch import Batch
        >>> Batch.build(bytes(16), "a", 7, [b""], time_us=0).events()[0].id
        '00000000000000000000000000000000:7'
        """
        return f"{self.batch.head.source.hex()}:{self.seq}"

    @property
    def time_us(self) -> int:
        """When it was published, in microseconds since 1970."""
        times = self._column("time")
        return self.batch.head.time_us if times is None else int(times)

    @property
    def time(self) -> datetime:
        """When it was published, by its publisher's clock."""
        return datetime.fromtimestamp(self.time_us / 1e6, UTC)

    @property
    def ttl_ms(self) -> int:
        """How long it is worth delivering; 0 is for ever."""
        ttl = self._column("ttl")
        return self.batch.head.ttl_ms if ttl is None else int(ttl)

    @property
    def headers(self) -> dict[str, str]:
        """Headers the publisher attached to this event."""
        return dict(self._column("headers") or {})

    @property
    def attributes(self) -> Attributes | None:
        """What uProtocol says about it; None for an event that came without."""
        from reknit.envelope.columns import has_attributes, read_attributes

        if not has_attributes(self.batch):
            return None
        index = self.seq - self.batch.head.first
        return read_attributes(self.batch, index, index + 1)[0]

    @property
    def is_stream(self) -> bool:
        """Whether the payload comes in pieces: `payload` is empty then, and `pieces` has it."""
        return bool(self.batch.head.flags & FLAG_STREAM)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The payload in pieces, as they come; of an event that is no stream, in one.

        Raises `Aborted` if the end never comes: then nothing of it counts. Only what was read to its end can be
        accepted. With `auto_accept` the first piece says that this subscriber is at it: no other one gets it any more.
        """
        if self.batch.stream is None:
            yield self.payload
            return
        async for piece in self.batch.stream:
            yield piece

    @property
    def attempt(self) -> int:
        """1 on the first hand-over, more on a repeated one."""
        return self.batch.attempt

    def _column(self, name: str) -> Any:
        values = self.batch.columns().get(name)
        return None if values is None else values[self.seq - self.batch.head.first]

    def _settle(self, outcome: Outcome, **details: Any) -> Awaitable[None]:
        settle = self.batch.settle
        if settle is None:
            raise LocalError(
                f"event {self.id} was not handed out by a subscription: there is nothing to settle"
            )
        result: Awaitable[None] = settle(self.seq, self.seq + 1, outcome, **details)
        return result

    def accept(self) -> Awaitable[None]:
        """It was processed: never hand it out to this subscriber again."""
        return self._settle(Outcome.ACCEPTED)

    def release(self) -> Awaitable[None]:
        """It was not processed and is not for me: try the next path, without counting an attempt."""
        return self._settle(Outcome.RELEASED)

    def fail(self, delay_s: float = 0.0, code: Code | int = 0, text: str = "") -> Awaitable[None]:
        """It was tried in vain: hand it out again after a back-off of at least `delay_s`.

        A google.rpc code may have a back-off of its own, or be one that is never retried.
        """
        return self._settle(Outcome.FAILED, delay_s=delay_s, code=int(code), text=text)

    def in_progress(self) -> Awaitable[None]:
        """It takes longer: its lease begins anew."""
        return self._settle(Outcome.RECEIVED)

    def reject(self, code: Code | int = Code.INVALID_ARGUMENT, text: str = "") -> Awaitable[None]:
        """It can never be processed: make it a dead letter, with this reason."""
        return self._settle(Outcome.REJECTED, code=int(code), text=text)
