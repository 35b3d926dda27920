"""The messages of simulated AMQP clients: bodies, properties and annotations of every type, and what is none."""

from __future__ import annotations

import base64
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

SOURCE_CHARACTERS: Final = 22
"""A delivery's tag is the event's id: its source in base64, then its seq in hexadecimal digits."""
GARBAGE: Final = (
    b"\x00\x53\x99\x45",
    b"\x00\x53\x75\xa0\x05ab",
    b"\x00\x53\x77\xa1\x02\xff\xfe",
    b"nonsense",
)
"""Bytes that are not a message: an unknown section, one that is cut off, text that is none, and no section at all."""


class ReceivedMessage(NamedTuple):
    """A message, as the event that it is."""

    payload: bytes
    topic: str
    source: bytes
    seq: int
    headers: dict[str, str]

    @property
    def id(self) -> str:
        return f"{self.source.hex()}:{self.seq}"


def encode_message(payload: bytes, rng: Random, to: str = "") -> bytes:
    """A message with this payload as data, as bytes or as text, and often with more than that."""
    from proton import Message

    body = rng.choice((payload, payload, payload.decode()))
    message = Message(body=body, inferred=body is payload and rng.random() < 0.7)
    if to:
        message.address = to
    if rng.random() < 0.3:
        message.priority, message.durable = rng.randrange(10), rng.random() < 0.5
        message.subject, message.correlation_id = "a subject", UUID(int=rng.getrandbits(128))
        message.creation_time, message.group_id, message.group_sequence = 1_700_000_000.0, "g", 3
        message.user_id, message.content_type = b"me", "text/plain"
    if rng.random() < 0.3:
        message.properties = {str(at): value for at, value in enumerate(_values(rng))}
        message.annotations = {"x-opt-line": rng.choice(_values(rng))}
    return bytes(message.encode())


def _values(rng: Random) -> list[Any]:
    """One of every type that a property may have."""
    import proton

    number = rng.randrange(100)
    return [
        True,
        None,
        "text",
        b"bytes",
        float(number),
        UUID(int=number),
        proton.ubyte(number),
        proton.ushort(number),
        proton.uint(number),
        proton.ulong(number),
        proton.byte(-number),
        proton.short(-number),
        proton.int32(-number),
        -number,
        proton.float32(number),
        proton.char("c"),
        proton.symbol("s"),
        proton.timestamp(number),
        proton.decimal32(number),
        proton.decimal64(number),
        proton.decimal128(bytes(16)),
    ]


def decode_message(data: bytes, pattern: str, tag: str) -> ReceivedMessage:
    """The event that a message is."""
    from proton import Message

    message = Message()
    message.decode(data)
    annotations = {str(name): value for name, value in (message.annotations or {}).items()}
    topic = annotations.pop("x-opt-reknit-topic", pattern)
    source = base64.urlsafe_b64decode(tag[:SOURCE_CHARACTERS] + "==")
    headers = {name.removeprefix("x-opt-reknit-"): str(value) for name, value in annotations.items()}
    headers |= {str(name): str(value) for name, value in (message.properties or {}).items()}
    body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
    return ReceivedMessage(body, str(topic), source, int(tag[SOURCE_CHARACTERS:], 16), headers)
