"""A publisher of values: a codec makes payloads of them, and the content type goes along as a header."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from reknit.client.codecs import CONTENT_TYPE, Codec
from reknit.client.publish.event_fields import Headers, check_headers
from reknit.client.publish.publisher import Publisher
from reknit.connection.publish_driver import StoredFuture
from reknit.errors import InvalidPayload

T = TypeVar("T")


def encode_typed(codec: Codec[T], value: T, headers: Headers | None) -> tuple[bytes, Headers]:
    """The payload of a value, and the event's headers with the content type.

    >>> from reknit.client.codecs import JSON
    >>> encode_typed(JSON, [21.5], {"trace": "7"})
    (b'[21.5]', {'content-type': 'application/json', 'trace': '7'})
    """
    return codec.encode(value), _with_type(codec, headers)


def encode_all_typed(
    codec: Codec[T], values: Iterable[T], headers: Headers | Sequence[Headers] | None
) -> tuple[list[bytes], Headers | Sequence[Headers]]:
    """The same for many values."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidPayload(values, "publish_many takes a list of values; publish takes one")
    payloads = [codec.encode(value) for value in values]
    if headers is None or isinstance(headers, Mapping):
        return payloads, _with_type(codec, headers)
    return payloads, [_with_type(codec, one) for one in headers]


def _with_type(codec: Codec[T], headers: Headers | None) -> Headers:
    own = {CONTENT_TYPE: codec.content_type}
    return own if headers is None else own | check_headers(headers)


class TypedPublisher(Generic[T]):
    """Made by `session.publisher(topic, codec=…)`. It is used as a `Publisher`, with values in place of payloads."""

    def __init__(self, publisher: Publisher, codec: Codec[T]) -> None:
        self.publisher = publisher
        """The publisher of the payloads."""
        self.codec = codec

    @property
    def source(self) -> bytes:
        """The source of its events. In a session with a name it is known once the session is connected."""
        return self.publisher.source

    @property
    def topic(self) -> str:
        return self.publisher.topic

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets."""
        return self.publisher.next_seq

    @property
    def unkept(self) -> int:
        """How many events are not known to be stored yet."""
        return self.publisher.unkept

    async def resume(self) -> int:
        """The seq that the next event gets, once the node has told the last seq of this source."""
        return await self.publisher.resume()

    def send(
        self, value: T, *, key: str | None = None, headers: Headers | None = None, ttl_ms: int | None = None
    ) -> StoredFuture:
        """Publish one event; the awaitable is done when there is room for more. `flush` raises errors."""
        payload, headers = encode_typed(self.codec, value, headers)
        return self.publisher.send(payload, key=key, headers=headers, ttl_ms=ttl_ms)

    def publish(
        self, value: T, *, key: str | None = None, headers: Headers | None = None, ttl_ms: int | None = None
    ) -> Awaitable[Any]:
        """Publish one event; the awaitable is done when it is stored, or gives its outcome: see `Publisher`."""
        payload, headers = encode_typed(self.codec, value, headers)
        return self.publisher.publish(payload, key=key, headers=headers, ttl_ms=ttl_ms)

    def publish_many(
        self,
        values: Iterable[T],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> Awaitable[Any]:
        """Publish many events; the awaitable is done when all of them are stored, or gives their outcome."""
        payloads, headers = encode_all_typed(self.codec, values, headers)
        return self.publisher.publish_many(payloads, keys, headers=headers, ttl_ms=ttl_ms)

    async def flush(self) -> None:
        """Return when everything published so far is stored. Raises the error if it is not."""
        await self.publisher.flush()

    async def close(self) -> None:
        """Return when everything is stored; afterwards nothing can be published."""
        await self.publisher.close()

    async def __aenter__(self) -> TypedPublisher[T]:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
