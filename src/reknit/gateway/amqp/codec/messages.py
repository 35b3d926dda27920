"""An AMQP message as an event, and an event as an AMQP message.

The payload is the message's body. The rest of the message travels in the column `amqp`, byte for byte, so that another
AMQP client gets the same message, and as text in `headers` for all other subscribers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from reknit.batch import Batch
from reknit.event import SIZE_COLUMN
from reknit.gateway.amqp.codec.encoding import MalformedValue, Symbol, Timestamp, decode, encode, listed, skip
from reknit.gateway.amqp.codec.sections import (
    ANNOTATIONS,
    APPLICATION,
    DATA,
    DELIVERY_ANNOTATIONS,
    EMPTY,
    FIELDS,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    check_body,
    check_section,
    check_text,
    descriptor,
)
from reknit.private_topics import public_topic

_SYMBOLS: Final = ("content-type", "content-encoding")
_TIMES: Final = ("absolute-expiry-time", "creation-time")
SECTIONS_HEADER: Final = "amqp-body"
"""The header of an event whose payload is a body in AMQP's encoding: neither text nor bytes."""
TOPIC_ANNOTATION: Final = Symbol("x-opt-reknit-topic")
REDRIVEN: Final = "redriven"
"""The header of a redriven event, and how its other headers about that begin."""
_TEXT, _BYTES, _DATA, _SECTIONS = b"vbdx"
_SHORT: Final = {_TEXT: b"\x00\x53\x77\xa1", _BYTES: b"\x00\x53\x77\xa0", _DATA: b"\x00\x53\x75\xa0"}
_LONG: Final = {_TEXT: b"\x00\x53\x77\xb1", _BYTES: b"\x00\x53\x77\xb0", _DATA: b"\x00\x53\x75\xb0"}
_KIND: Final = {(VALUE, 0xA1): _TEXT, (VALUE, 0xA0): _BYTES, (DATA, 0xA0): _DATA} | {
    (VALUE, 0xB1): _TEXT, (VALUE, 0xB0): _BYTES, (DATA, 0xB0): _DATA
}  # fmt: skip
PRIORITY_DEFAULT: Final = 4
_DURABLE: Final = 0x80
NATIVE: Final = bytes((_DATA, PRIORITY_DEFAULT | _DURABLE))
TTL_MS_MAX: Final = (1 << 32) - 1


class DecodedMessage(NamedTuple):
    """A message, decoded as far as an event needs it."""

    payload: bytes
    meta: bytes
    """The kind of its body, its priority and durability, and its sections as they arrived."""
    headers: dict[str, str] | None
    ttl_ms: int
    to: str


_headers_of: Final = itemgetter(DecodedMessage._fields.index("headers"))
_ttl_of: Final = itemgetter(DecodedMessage._fields.index("ttl_ms"))

_METAS: Final = {(kind, mark): bytes((kind, mark)) for kind in b"vbdx" for mark in range(256)}


_PLAIN_TEXT: Final = _METAS[_TEXT, PRIORITY_DEFAULT]
_PLAIN: Final = {
    bytes.fromhex("00537045 00537345") + start: _METAS[kind, PRIORITY_DEFAULT]
    for kind, start in _SHORT.items()
}
"""The meta of a message with an empty header, empty properties and a short body, by its first bytes."""


# -- from a client


def decode_message(data: bytes) -> DecodedMessage:
    """Decode a message. Raises `MalformedValue`.

    >>> decode_message(bytes.fromhex("005377a1026869"))
    DecodedMessage(payload=b'hi', meta=b'v\\x04', headers=None, ttl_ms=0, to='')
    """
    plain = _PLAIN.get(data[:12])  # most messages are only a short body
    if plain is not None and len(data) == 13 + data[12]:
        payload = data[13:]
        if plain is _PLAIN_TEXT:
            check_text(payload, 13)
        return DecodedMessage(payload, plain, None, 0, "")
    start, at, header, kept, headers, to = _before_body(data)
    mark, ttl_ms = _mark(header)
    kind, payload = _body(data, start, at)
    if kind == _SECTIONS:
        headers = {**(headers or {}), SECTIONS_HEADER: "sections"}
    meta = _METAS[kind, mark]
    return DecodedMessage(payload, meta + kept if kept else meta, headers, ttl_ms, to)


class MessageStart(NamedTuple):
    """The beginning of a message that is still arriving."""

    meta: bytes
    headers: dict[str, str] | None
    ttl_ms: int
    size: int
    """The size of the first section of its body."""
    payload_at: int


def decode_start(data: bytes) -> MessageStart | None:
    """Decode the beginning of a message that is still arriving; None if it can't be streamed.

    >>> decode_start(bytes.fromhex("005377b1000100006869"))
    MessageStart(meta=b'v\\x04', headers=None, ttl_ms=0, size=65536, payload_at=8)
    """
    try:
        start, at, header, kept, headers, _ = _before_body(data)
    except (IndexError, MalformedValue):
        return None  # an error, or a missing part, is found when the whole message has arrived
    kind = _KIND.get((data[start + 2], data[at]) if at == start + 3 and at + 5 <= len(data) else (0, 0))
    if kind is None or data[at] < 0xB0:
        return None
    mark, ttl_ms = _mark(header)
    size = int.from_bytes(data[at + 1 : at + 5], "big")
    return MessageStart(_METAS[kind, mark] + kept, headers, ttl_ms, size, at + 5)


def _before_body(data: bytes) -> tuple[int, int, list[Any], bytes, dict[str, str] | None, str]:
    """Where the body's section and its value start, the header, the sections to pass on, their headers, and `to`."""
    at, end, kept, last = 0, len(data), b"", 0
    header: list[Any] = []
    headers: dict[str, str] | None = None
    to = ""
    start = 0
    while (start := at) < end:
        section, at = descriptor(data, at)
        if section in (DATA, SEQUENCE, VALUE):
            break
        if section <= last:
            raise MalformedValue(f"section {section:#x} after {last:#x}", start)
        last = section
        stop = skip(data, at)
        if data[at:stop] not in EMPTY:
            value, _ = decode(data, at)
            check_section(section, value, at)
            if section == HEADER:
                header = value
            elif section in (ANNOTATIONS, PROPERTIES, APPLICATION):
                kept += b"\x00\x53" + bytes((section,)) + data[at:stop]
                if section != ANNOTATIONS:
                    headers = {**_headers(section, value), **(headers or {})}
                    to = headers.get("to", "") if section == PROPERTIES else to
        at = stop
    return start, at, header, kept, headers, to


def _body(data: bytes, start: int, at: int) -> tuple[int, bytes]:
    """The kind and payload of the body whose section starts at `start`, and its value at `at`."""
    if start == len(data):
        return _SECTIONS, b""
    kind = _KIND.get((data[start + 2], data[at]) if at == start + 3 and at < len(data) else (0, 0))
    if kind is None or skip(data, at) != len(data):
        check_body(data, start)
        return _SECTIONS, data[start:]
    payload = data[at + (2 if data[at] < 0xB0 else 5) :]
    if kind == _TEXT:
        check_text(payload, at)
    return kind, payload


def _mark(header: list[Any]) -> tuple[int, int]:
    """Priority and durability in a byte, and the time to live."""
    durable, priority, ttl = (*header, None, None, None)[:3]
    priority = priority if isinstance(priority, int) and 0 <= priority < 128 else PRIORITY_DEFAULT
    ttl = ttl if isinstance(ttl, int) and 0 < ttl <= TTL_MS_MAX else 0
    return priority | (_DURABLE if durable is True else 0), ttl


def _headers(section: int, value: Any) -> dict[str, str]:
    """Properties by name. Application properties by name too, with a prefix if a property has the same name."""
    if section == PROPERTIES:
        named = zip(FIELDS, value, strict=False)
        return {name: _text(one) for name, one in named if one is not None}
    return {f"app-{key}" if key in FIELDS else str(key): _text(one) for key, one in value.items()}


def _text(value: Any) -> str:
    """A simple value as text: bytes as hex, booleans as in JSON."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case None:
            return ""
        case _:
            return str(value)


def columns(messages: Sequence[DecodedMessage]) -> dict[str, list[Any]]:
    """The columns of a batch of these messages.

    >>> columns([decode_message(bytes.fromhex("005377a1026869"))])
    {'amqp': [b'v\\x04']}
    """
    made: dict[str, list[Any]] = {"amqp": [one.meta for one in messages]}
    if any(map(_headers_of, messages)):
        made["headers"] = [one.headers for one in messages]
    if any(map(_ttl_of, messages)):
        made["ttl"] = [one.ttl_ms for one in messages]
    return made


# -- to a client


def encode_messages(batch: Batch, now_us: int, with_topic: bool = False) -> list[bytes]:
    """Encode a batch's events as messages.

    >>> batch = Batch.build(bytes(16), "plant/temp", 1, [b"21.5"], time_us=0)
    >>> encode_messages(batch, 0)[0].hex(" ")
    '00 53 70 c0 02 01 41 00 53 75 a0 04 32 31 2e 35'
    """
    payloads = batch.payloads()
    found = batch.columns()
    metas, headers, ttls = found.get("amqp"), found.get("headers"), found.get("ttl")
    if metas and set(map(type, metas)) != {bytes}:
        metas = None
    topic = public_topic(batch.topic) if with_topic else ""
    if headers is None and ttls is None and not batch.head.ttl_ms:
        return _encode_plain(payloads, metas or [NATIVE] * len(payloads), batch.attempt, topic)
    made: list[bytes] = []
    for at, payload in enumerate(payloads):
        meta = metas[at] if metas else meta_of(headers[at] if headers else None)
        ttl_ms = ttls[at] if ttls else batch.head.ttl_ms
        left_ms = max(1, ttl_ms - max(0, now_us - batch.time_us) // 1000) if ttl_ms else 0
        notes = _notes(topic, headers[at] if headers and metas else None)
        made.append(_front(meta, batch.attempt, notes, left_ms) + body(meta, payload))
    return made


def encode_start(batch: Batch, now_us: int, with_topic: bool) -> tuple[bytes, int, int | None]:
    """For a stream: the bytes before the body, the kind of the body, and its size if it was announced."""
    found = batch.columns()
    [meta] = found.get("amqp") or [None]
    [headers] = found.get("headers") or [None]
    [size] = found.get(SIZE_COLUMN) or [None]
    if type(meta) is not bytes or not _is_meta(meta):
        meta = meta_of(headers)
    ttl_ms = batch.head.ttl_ms
    left_ms = max(1, ttl_ms - max(0, now_us - batch.time_us) // 1000) if ttl_ms else 0
    made = _front(meta, batch.attempt, _notes(public_topic(batch.topic) if with_topic else ""), left_ms)
    is_announced = type(size) is int and 0 <= size < 1 << 32
    return made, meta[0] if meta[0] in b"vbd" else _DATA, size if is_announced else None


def _encode_plain(payloads: list[bytes], metas: list[bytes], attempt: int, topic: str) -> list[bytes]:
    """Encode messages that do not expire. If only their payloads differ, the rest is encoded once."""
    meta, size = metas[0], len(payloads[0])
    is_alike = metas.count(meta) == len(metas) and set(map(len, payloads)) == {size}
    if is_alike and meta[:1] != b"x" and _is_meta(meta):
        prefix = front(meta, attempt, topic) + body(meta, payloads[0])
        prefix = prefix[: len(prefix) - size]
        return [prefix + payload for payload in payloads]
    return [
        front(meta, attempt, topic) + body(meta, payload)
        for meta, payload in zip(metas, payloads, strict=True)
    ]


def body(meta: bytes, payload: bytes) -> bytes:
    """The body's section. A payload that should be in AMQP's encoding, and is not, is sent as plain bytes."""
    kind = meta[0] if _is_meta(meta) else _DATA
    if kind == _SECTIONS:
        try:
            check_body(payload, 0)
            return payload
        except MalformedValue:
            kind = _DATA
    size = len(payload)
    if size < 256:
        return _SHORT[kind] + bytes((size,)) + payload
    return _LONG[kind] + size.to_bytes(4, "big") + payload


@lru_cache(4096)
def front(meta: bytes, attempt: int, topic: str) -> bytes:
    """Everything before the body of an event that does not expire. Mostly the same from event to event."""
    return _front(meta, attempt, _notes(topic), 0)


def _notes(topic: str, headers: Any = None) -> list[tuple[Symbol, str]]:
    """The annotations of a message: its topic, if that is wanted, and why a redriven message comes again."""
    notes = [(TOPIC_ANNOTATION, topic)] if topic else []
    if isinstance(headers, dict) and REDRIVEN in headers:
        texts = {str(key): str(value) for key, value in headers.items()}
        notes += [(Symbol(f"x-opt-reknit-{key}"), texts[key]) for key in texts if key.startswith(REDRIVEN)]
    return notes


def _front(meta: bytes, attempt: int, notes: list[tuple[Symbol, str]], ttl_ms: int) -> bytes:
    meta = meta if _is_meta(meta) else NATIVE
    mark = meta[1]
    fields = [b"\x41" if mark & _DURABLE else b"\x42"]
    if mark & ~_DURABLE != PRIORITY_DEFAULT or ttl_ms or attempt > 1:
        fields.append(bytes((0x50, mark & ~_DURABLE)))
    if ttl_ms or attempt > 1:
        fields.append(b"\x70" + ttl_ms.to_bytes(4, "big") if ttl_ms else b"\x40")
    if attempt > 1:
        fields += [b"\x42", b"\x70" + min(attempt - 1, TTL_MS_MAX).to_bytes(4, "big")]
    sections = meta[2:]
    return b"\x00\x53\x70" + listed(fields) + (_annotated(sections, notes) if notes else sections)


def _annotated(sections: bytes, notes: list[tuple[Symbol, str]]) -> bytes:
    """The sections with further annotations. The bare message stays unchanged."""
    added = [encode(one) for note in notes for one in note]
    if sections[:3] != b"\x00\x53\x72":
        return b"\x00\x53\x72" + listed(added, 0xC1) + sections
    stop = skip(sections, 3)
    is_short = sections[3] == 0xC1
    count = sections[5] if is_short else int.from_bytes(sections[8:12], "big")
    elements = sections[6 if is_short else 12 : stop] + b"".join(added)
    size = (len(elements) + 4).to_bytes(4, "big") + (count + len(added)).to_bytes(4, "big")
    return b"\x00\x53\x72\xd1" + size + elements + sections[stop:]


@lru_cache(4096)
def _is_meta(meta: bytes) -> bool:
    """Whether a value of the column `amqp` is valid: any publisher can write there, and clients must not break."""
    if len(meta) < 2 or meta[0] not in b"vbdx":
        return False
    at, last = 2, DELIVERY_ANNOTATIONS
    try:
        while at < len(meta):
            section, value_at = descriptor(meta, at)
            value, at = decode(meta, value_at)
            check_section(section, value, at)
            if not last < section <= APPLICATION:
                return False
            last = section
    except MalformedValue:
        return False
    return True


def meta_of(headers: Any) -> bytes:
    """The meta of another publisher's event: its headers as properties and application properties.

    >>> meta_of({"subject": "s", "line": "1"}).hex(" ")
    '64 84 00 53 73 c0 07 04 40 40 40 a1 01 73 00 53 74 c1 0a 02 a1 04 6c 69 6e 65 a1 01 31'
    """
    if not isinstance(headers, dict) or not headers:
        return NATIVE
    texts = {str(key): str(value) for key, value in headers.items()}
    fields = [_field(name, texts.pop(name, "")) for name in FIELDS]
    while fields and fields[-1] == b"\x40":
        fields.pop()
    made = NATIVE + (b"\x00\x53\x73" + listed(fields) if fields else b"")
    return made + (b"\x00\x53\x74" + encode(texts) if texts else b"")


def _field(name: str, text: str) -> bytes:
    """A property from a header's text. A value that should be a number or a time, and is not, is left out."""
    if not text:
        return b"\x40"
    try:
        if name in _TIMES:
            return encode(Timestamp(int(text)))
        if name == "group-sequence":
            return b"\x70" + int(text).to_bytes(4, "big")
        if name == "user-id":
            return encode(text.encode())
        return encode(Symbol(text)) if name in _SYMBOLS else encode(text)
    except (ValueError, OverflowError):
        return b"\x40"
