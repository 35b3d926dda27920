"""What a publisher may say of an event beside its payload: a key, headers and a time to live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from reknit.batch_layout import PRIORITY_DEFAULT
from reknit.client.publish.batching import LENGTH_BYTES, BatchLimits
from reknit.envelope.attributes import Priority
from reknit.errors import LocalError, TooLarge
from reknit.frame import Buffer

TTL_MS_MAX: Final = (1 << 32) - 1
Headers = Mapping[str, str]


def check_priority(priority: object) -> int:
    """The priority. Raises `LocalError`.

    >>> check_priority(9)
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid priority 9: priorities are whole numbers from 0 to 6.
    """
    if type(priority) is not int and not isinstance(priority, Priority):
        raise LocalError(f"Invalid priority {priority!r}: priorities are whole numbers from 0 to 6.")
    if not 0 <= priority <= max(Priority):
        raise LocalError(f"Invalid priority {priority}: priorities are whole numbers from 0 to 6.")
    return int(priority)


def variant_of(priority: int) -> str:
    """Events of another priority overtake, so they have a source of their own. This tells their lineages apart.

    >>> variant_of(1), variant_of(5)
    ('', '\\x005')
    """
    return "" if priority == PRIORITY_DEFAULT else f"\0{priority}"


def check_ttl(ttl_ms: object) -> int:
    """The time to live. Raises `LocalError`.

    >>> check_ttl(-1)
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid ttl_ms -1: it must be a whole number from 0 (never) to 4294967295, in milliseconds.
    """
    if type(ttl_ms) is not int or not 0 <= ttl_ms <= TTL_MS_MAX:
        text = f"it must be a whole number from 0 (never) to {TTL_MS_MAX}, in milliseconds."
        raise LocalError(f"Invalid ttl_ms {ttl_ms!r}: {text}")
    return ttl_ms


def check_key(key: object) -> str:
    """The key. Raises `LocalError`.

    >>> check_key(7)
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid key 7: a key is a text.
    """
    if not isinstance(key, str):
        raise LocalError(f"Invalid key {key!r}: a key is a text.")
    return key


def check_headers(headers: object) -> dict[str, str]:
    """The headers. Raises `LocalError`.

    >>> check_headers({"trace": 7})
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid header 'trace': 7: names and values of headers are texts.
    """
    if not isinstance(headers, Mapping):
        raise LocalError(f"Invalid headers {headers!r}: pass a dict of texts.")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise LocalError(f"Invalid header {name!r}: {value!r}: names and values of headers are texts.")
    return dict(headers)


class EventFields(NamedTuple):
    """The fields of one event; None for those that it does not have."""

    key: str | None = None
    headers: dict[str, str] | None = None
    ttl_ms: int | None = None
    at_us: int | None = None

    @property
    def size(self) -> int:
        """About how many bytes they need in a batch."""
        size = len(self.key) if self.key else 0
        if self.headers:
            size += sum(len(name) + len(value) + 2 for name, value in self.headers.items())
        return size


class FieldLimit:
    """Checks fields as a caller gives them."""

    def __init__(self, topic: str, bytes_max: int) -> None:
        self._topic = topic
        self._bytes_max = bytes_max

    def of_one(
        self, key: str | None = None, headers: Headers | None = None, ttl_ms: int | None = None
    ) -> EventFields:
        """The fields of one event. Raises `LocalError`."""
        return self._within(
            EventFields(
                None if key is None else check_key(key),
                None if headers is None else check_headers(headers),
                None if ttl_ms is None else check_ttl(ttl_ms),
            )
        )

    def of_many(
        self,
        count: int,
        keys: Sequence[str] | None,
        headers: Headers | Sequence[Headers] | None,
        ttl_ms: int | None,
    ) -> list[EventFields]:
        """The fields of many events: a key for each, headers for each or the same for all, one ttl. Raises."""
        shared = self.of_one(None, headers if isinstance(headers, Mapping) else None, ttl_ms)
        if keys is None and (headers is None or isinstance(headers, Mapping)):
            return [shared] * count
        given_keys = [None] * count if keys is None else _one_each(keys, count, "keys")
        if headers is None or isinstance(headers, Mapping):
            return [
                self._within(EventFields(check_key(key), shared.headers, shared.ttl_ms)) for key in given_keys
            ]
        given_headers = _one_each(headers, count, "headers")
        return [self.of_one(key, one, ttl_ms) for key, one in zip(given_keys, given_headers, strict=True)]

    def _within(self, fields: EventFields) -> EventFields:
        if fields.size > self._bytes_max:
            what = f"{fields.size} bytes of key and headers of an event on {self._topic!r}"
            raise TooLarge(what, self._bytes_max, "limits.headers_bytes_max")
        return fields


def _one_each(given: Sequence[Any], count: int, what: str) -> list[Any]:
    if isinstance(given, str | bytes):
        raise LocalError(f"Invalid {what} {given!r}: pass a list.")
    several = list(given)
    if len(several) != count:
        raise LocalError(f"{count} payloads have {len(several)} {what}; pass one for each payload")
    return several


class GatheredFields:
    """Fields of events that are not in a batch yet, by their index. Most events have none."""

    def __init__(self) -> None:
        self._by_index: dict[int, EventFields] = {}

    def __bool__(self) -> bool:
        return bool(self._by_index)

    def put(self, index: int, fields: EventFields) -> int:
        """The event at an index has these fields; returns how many bytes they need."""
        self._by_index[index] = fields
        return fields.size

    def put_many(self, index: int, several: Sequence[EventFields]) -> int:
        """The same for several events in a row."""
        self._by_index.update(enumerate(several, index))
        return sum(one.size for one in several)

    def drop(self, index: int) -> int:
        """The event at an index was given back to its caller; returns how many bytes its fields needed."""
        dropped = self._by_index.pop(index, None)
        return 0 if dropped is None else dropped.size

    def take(self, count: int) -> list[EventFields]:
        """The fields of all events, in order. Afterwards there are none."""
        found, self._by_index = self._by_index, {}
        nothing = EventFields()
        return [found.get(index, nothing) for index in range(count)]


def split_with_fields(
    payloads: Sequence[Buffer], several: Sequence[EventFields], limits: BatchLimits
) -> Iterator[tuple[Sequence[Buffer], dict[str, Any]]]:
    """Parts that each fit into one batch, with further arguments for `Batch.build`. A batch has one ttl.

    >>> limits = BatchLimits(payload_bytes_max=9, batch_bytes=9, bytes_max=100, events_max=9)
    >>> several = [EventFields(key="a"), EventFields(), EventFields(ttl_ms=5)]
    >>> list(split_with_fields([b"1", b"2", b"3"], several, limits))
    [([b'1', b'2'], {'columns': {'key': ['a', '']}}), ([b'3'], {'ttl_ms': 5})]
    """
    start = size = 0
    for index, (payload, one) in enumerate(zip(payloads, several, strict=True)):
        cost = len(payload) + LENGTH_BYTES + one.size
        is_full = size + cost > limits.bytes_max or index - start >= limits.events_max
        if index > start and (is_full or one.ttl_ms != several[start].ttl_ms):
            yield payloads[start:index], _arguments(several[start:index])
            start, size = index, 0
        size += cost
    yield payloads[start:], _arguments(several[start:])


def _arguments(part: Sequence[EventFields]) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {}
    if any(one.key is not None for one in part):
        columns["key"] = [one.key or "" for one in part]
    if any(one.headers for one in part):
        columns["headers"] = [one.headers for one in part]
    if any(one.at_us is not None for one in part):
        columns["time"] = [one.at_us for one in part]
    arguments: dict[str, Any] = {"columns": columns} if columns else {}
    if part[0].ttl_ms is not None:
        arguments["ttl_ms"] = part[0].ttl_ms
    return arguments
