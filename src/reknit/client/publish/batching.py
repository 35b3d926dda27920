"""The limits of a batch, and the split of many events into batches within them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from reknit.config import LimitSettings
from reknit.errors import InvalidPayload, TooLarge
from reknit.frame import Buffer

LENGTH_BYTES = 4
"""How many bytes an event needs in a batch besides its payload."""


def check_payload(payload: Buffer | str, topic: str, bytes_max: int) -> bytes:
    """The payload as bytes. Raises `InvalidPayload`, or `TooLarge`.

    >>> check_payload("21.5", "plant/temp", 100)
    b'21.5'
    >>> check_payload(5, "plant/temp", 100)
    Traceback (most recent call last):
    ...
    reknit.errors.InvalidPayload: Invalid payload 5 (int): pass bytes or str, or choose a codec, as in codec=JSON
    """
    if isinstance(payload, str):
        payload = _encoded(payload)
    elif not isinstance(payload, bytes):
        try:
            payload = bytes(memoryview(payload))
        except TypeError:
            raise InvalidPayload(payload) from None
    if len(payload) > bytes_max:
        raise TooLarge(
            f"a payload of {len(payload)} bytes on {topic!r}", bytes_max, "limits.payload_bytes_max"
        )
    return payload


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(text, "it has half of a surrogate pair, which UTF-8 can't express") from None


def check_payloads(payloads: object) -> list[Any]:
    """Many payloads as a list. Raises `InvalidPayload` for one payload, which would be taken apart.

    >>> check_payloads("hello")
    Traceback (most recent call last):
    ...
    reknit.errors.InvalidPayload: Invalid payload 'hello' (str): publish_many takes a list of payloads; publish takes one
    """
    if type(payloads) is list:
        return payloads
    if isinstance(payloads, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
        payloads, Iterable
    ):
        raise InvalidPayload(payloads, "publish_many takes a list of payloads; publish takes one")
    return list(payloads)


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a batch may become."""

    payload_bytes_max: int
    batch_bytes: int
    """A batch of this size is sent without waiting for more events."""
    bytes_max: int
    events_max: int

    @classmethod
    def of(cls, limits: LimitSettings) -> BatchLimits:
        """The limits as configured."""
        return cls(
            payload_bytes_max=limits.payload_bytes_max,
            batch_bytes=limits.batch_bytes,
            bytes_max=limits.frame_bytes_max // 2,
            events_max=limits.batch_events_max,
        )

    def allow(self, lengths: list[int], size: int) -> bool:
        """Whether payloads of these lengths, `size` bytes together, fit into one batch."""
        count = len(lengths)
        fits = count <= self.events_max and size + LENGTH_BYTES * count <= self.bytes_max
        return fits and (size <= self.payload_bytes_max or max(lengths) <= self.payload_bytes_max)

    def split(self, payloads: list[Buffer], size: int) -> Iterator[list[Buffer]]:
        """Cut a list so that every part fits into one batch. `size` includes the lengths.

        >>> limits = BatchLimits(payload_bytes_max=9, batch_bytes=9, bytes_max=100, events_max=2)
        >>> list(limits.split([b"1", b"2", b"3"], 15))
        [[b'1', b'2'], [b'3']]
        """
        if len(payloads) <= self.events_max and size <= self.bytes_max:
            yield payloads
            return
        part: list[Buffer] = []
        size = 0
        for payload in payloads:
            if part and (size + len(payload) + LENGTH_BYTES > self.bytes_max or len(part) >= self.events_max):
                yield part
                part, size = [], 0
            part.append(payload)
            size += len(payload) + LENGTH_BYTES
        yield part


class JoinedPayloads:
    """The payloads of whole calls, joined to blocks of bytes: a batch takes a block without looking at each payload."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, block: bytes, lengths: list[int]) -> None:
        """Add the payloads of one call."""
        self._blocks.append(block)
        self._lengths += lengths

    def take(self) -> tuple[list[bytes], list[int]]:
        """All blocks, and the length of every payload in them. Afterwards there are none."""
        taken = (self._blocks, self._lengths)
        self._blocks, self._lengths = [], []
        return taken
