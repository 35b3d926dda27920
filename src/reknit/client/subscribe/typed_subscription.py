"""A subscription with a codec: events have values, and those that can't be read are rejected."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from reknit.checkpoint import Checkpoint
from reknit.client.codecs import Codec, Undecodable
from reknit.client.subscribe.subscription import Subscription
from reknit.event import Event, TypedEvent
from reknit.outcome import Code

log = logging.getLogger("reknit.client")

T = TypeVar("T")


class EventDecoder(Generic[T]):
    """Makes typed events of events. One that can't be decoded is rejected, with the reason: it becomes a dead letter
    if the subscription is durable."""

    def __init__(self, codec: Codec[T], pattern: str) -> None:
        self.codec = codec
        self._pattern = pattern
        self.rejected = 0
        """How many events were rejected."""

    def decode(self, event: Event) -> TypedEvent[T] | None:
        """The typed event; None if it was rejected."""
        try:
            value = self.codec.decode(event.payload)
        except Undecodable as error:
            self._reject(event, str(error))
            return None
        return TypedEvent(event.batch, event.seq, value, event.payload)

    def _reject(self, event: Event, why: str) -> None:
        self.rejected += 1
        level = logging.WARNING if self.rejected == 1 else logging.DEBUG
        text = "subscription to %r: rejected event %s on %s: %s"
        log.log(level, text, self._pattern, event.id, event.topic, why)
        event.reject(Code.INVALID_ARGUMENT, why)


class TypedSubscription(Generic[T]):
    """Made by `session.subscribe(pattern, codec=…)`. It is used as a `Subscription`; `event.payload` is a value.

    What does not decode is rejected: a durable subscription makes it a dead letter with the reason, and others log it.
    `events.subscription` has the same events as bytes.
    """

    def __init__(self, subscription: Subscription, codec: Codec[T], pattern: str) -> None:
        self.subscription = subscription
        self._decoder = EventDecoder(codec, pattern)

    @property
    def rejected(self) -> int:
        """How many events could not be decoded."""
        return self._decoder.rejected

    @property
    def checkpoint(self) -> Checkpoint:
        """Everything up to here is settled: a portable place to resume from, without a loss."""
        return self.subscription.checkpoint

    async def __aenter__(self) -> TypedSubscription[T]:
        await self.subscription.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None:
        await self.subscription.__aexit__(kind, *args)

    async def __aiter__(self) -> AsyncIterator[TypedEvent[T]]:
        async for event in self.subscription:
            typed = self._decoder.decode(event)
            if typed is not None:
                yield typed

    async def __anext__(self) -> TypedEvent[T]:
        while True:
            typed = self._decoder.decode(await anext(self.subscription))
            if typed is not None:
                return typed

    async def forget(self) -> None:
        """Delete a durable subscription: the node retains nothing for it."""
        await self.subscription.forget()

    @property
    def is_paused(self) -> bool:
        return self.subscription.is_paused

    async def pause(self) -> None:
        """Get no more events until `resume`."""
        await self.subscription.pause()

    async def resume(self) -> None:
        """Get events again after `pause`."""
        await self.subscription.resume()
