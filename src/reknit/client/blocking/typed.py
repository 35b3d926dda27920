"""Publishing and receiving values in threads: as `TypedPublisher` and `TypedSubscription`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from reknit.checkpoint import Checkpoint
from reknit.client.blocking.publisher import SyncPublisher
from reknit.client.blocking.subscription import SyncSubscription
from reknit.client.codecs import Codec
from reknit.client.publish.event_fields import Headers
from reknit.client.publish.typed_publisher import encode_all_typed, encode_typed
from reknit.client.subscribe.typed_subscription import EventDecoder
from reknit.event import TypedEvent
from reknit.outcome import Outcome

T = TypeVar("T")


class SyncTypedPublisher(Generic[T]):
    """Made by `session.publisher(topic, codec=…)`; any number of threads may use it."""

    def __init__(self, publisher: SyncPublisher, codec: Codec[T]) -> None:
        self.publisher = publisher
        """The publisher of the payloads."""
        self.codec = codec

    @property
    def source(self) -> bytes:
        return self.publisher.source

    @property
    def topic(self) -> str:
        return self.publisher.topic

    def publish(
        self, value: T, *, key: str | None = None, headers: Headers | None = None, ttl_ms: int | None = None
    ) -> Outcome | None:
        """Publish one event; returns when it is stored. With outcomes, gives its outcome."""
        payload, headers = encode_typed(self.codec, value, headers)
        return self.publisher.publish(payload, key=key, headers=headers, ttl_ms=ttl_ms)

    def publish_many(
        self,
        values: Iterable[T],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> Outcome | None:
        """Publish many events; returns when all of them are stored."""
        payloads, headers = encode_all_typed(self.codec, values, headers)
        return self.publisher.publish_many(payloads, keys, headers=headers, ttl_ms=ttl_ms)

    def flush(self) -> None:
        """Return when everything sent so far is stored. Raises the error if it is not."""
        self.publisher.flush()

    def close(self) -> None:
        """Return when everything is stored; afterwards nothing can be published."""
        self.publisher.close()

    def __enter__(self) -> SyncTypedPublisher[T]:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class SyncTypedSubscription(Generic[T]):
    """Made by `session.subscribe(pattern, codec=…)`; open while in its `with`. `event.payload` is a value."""

    def __init__(self, subscription: SyncSubscription, codec: Codec[T], pattern: str) -> None:
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

    def __enter__(self) -> SyncTypedSubscription[T]:
        self.subscription.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        self.subscription.__exit__(kind, *args)

    def __iter__(self) -> Iterator[TypedEvent[T]]:
        for event in self.subscription:
            typed = self._decoder.decode(event)
            if typed is not None:
                yield typed

    def close(self) -> None:
        """End the subscription from any thread: a thread that iterates over events leaves its loop."""
        self.subscription.close()

    def forget(self) -> None:
        """Delete a durable subscription: the node retains nothing for it."""
        self.subscription.forget()

    def pause(self) -> None:
        """Get no more events until `resume`."""
        self.subscription.pause()

    def resume(self) -> None:
        """Get events again after `pause`."""
        self.subscription.resume()
