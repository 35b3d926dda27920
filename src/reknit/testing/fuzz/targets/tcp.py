"""The protocol of nodes and clients: captured conversations in step with the node, with changed fields and order."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any, Final

import msgspec

from reknit.batch import Batch
from reknit.batch_layout import COLUMNS_LEN, HEADER, HEADER_BYTES, HEADER_FIELDS, TOPIC_LEN
from reknit.decoding import UNREADABLE
from reknit.errors import MalformedFrame
from reknit.frame import (
    KIND_BATCH,
    KIND_MESSAGE,
    LEAD,
    PREFIX,
    PREFIX_BYTES,
    checksum,
    pad8,
    peek,
    unwrap,
    verify,
    wrap,
)
from reknit.queue_order import QueueOrder
from reknit.testing.fabric.programs.attacks import mutate_bytes, tcp_messages
from reknit.testing.fuzz.capture import tcp_conversations
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import mutate_order, mutate_value
from reknit.testing.fuzz.targets.target import PortTarget, conversation
from reknit.wire.codec import encode
from reknit.wire.messages import VERSION, DispositionRow, Hello, Settle, Start, Subscribe, Unsubscribe

PARTS_MAX: Final = 24
"""How much of a long conversation an input has, after its greeting."""
SOURCE_BYTES: Final = 16
POOL: Final = 500
"""How many sources the inputs use again and again. A few others are new."""
LENGTH: Final = [field for field, _ in HEADER_FIELDS].index("length")
_COLUMNS: Final = {"ttl": [5], "time": [1], "id": ["x"], "key": ["k"], "headers": [{"a": "b"}], "size": [9]}
HELLO: Final = (KIND_MESSAGE, 1)
KEPT: Final[tuple[QueueOrder, ...]] = ("key", "key", "source", "")
NOWHERE: Final = "tcp://127.0.0.1:1"

Part = tuple[bytes, bool]
"""A frame, and whether the node answered it."""


class TcpTarget(PortTarget):
    """Clients, caches, workers, services and linked nodes that break the protocol."""

    name = port = "tcp"

    @cached_property
    def conversations(self) -> list[list[Part]]:
        found = []
        for one in tcp_conversations():
            parts = []
            for turn in one.turns:
                parts += [(frame, False) for frame in turn.said[:-1]]
                parts.append((turn.said[-1], turn.is_answered))
            found.append([(_nowhere(frame), is_answered) for frame, is_answered in parts])
        return found

    @cached_property
    def frames(self) -> list[Part]:
        """One frame of each length and kind, so that rare ones are as likely as frequent ones."""
        kinds: dict[tuple[int, Any], list[Part]] = {}
        for part in (part for one in self.conversations for part in one):
            frame = part[0]
            kind = (frame[2], _body(frame)[0] if frame[2] == KIND_MESSAGE else 0)
            kinds.setdefault(kind, []).append(part)
        return [part for kind, parts in kinds.items() if kind != HELLO for part in parts[:12]]

    def make(self, rng: Random) -> tuple[Step, ...]:
        hello, parts = self._some(rng)
        if rng.random() < 0.1:  # also what comes first
            hello, parts = [], hello + parts
        if rng.random() < 0.97:
            parts = mutate_order(rng, parts, self.frames, _mutate_part)
        parts = hello + parts
        sources = _sources(rng)
        return conversation(
            rng, [(_with_sources(frame, sources), is_answered) for frame, is_answered in parts]
        )

    def _some(self, rng: Random) -> tuple[list[Part], list[Part]]:
        """The greeting of a conversation, and a part of what follows."""
        if rng.random() < 0.15:
            made = [(frame, True) for frame in rng.choice((tcp_messages, queue_messages))(rng)]
            return made[:1], made[1:]
        whole = rng.choice(self.conversations)
        start = rng.choice((1, 1, rng.randrange(1, max(2, len(whole)))))
        stop = start + rng.randint(1, PARTS_MAX)
        return whole[:1], whole[start:stop]


def queue_messages(rng: Random) -> list[bytes]:
    """Members of a queue that keeps the order of keys, and events with keys for them."""
    source, process = rng.randbytes(SOURCE_BYTES), rng.randbytes(SOURCE_BYTES)
    keys = [rng.choice(("a", "b", "", None)) for _ in range(rng.randint(1, 6))]
    batch = Batch.build(source, "evil/q", 1, [b"x"] * len(keys), 1, columns={"key": keys})
    queue = f"evil-{rng.randrange(3)}"
    order: QueueOrder = rng.choice(KEPT)
    said = [encode(Hello(VERSION, "evil"))]
    for sub in range(rng.randint(1, 3)):
        member = Subscribe(sub, "evil/**", "", Start(), 1 << 20, queue=queue, process=process, order=order)
        said.append(encode(member))
    said.insert(rng.randint(1, len(said)), bytes(batch.data))
    for _ in range(rng.randrange(4)):
        start = rng.randint(1, len(keys))
        row = DispositionRow("evil/q", source, start, rng.randint(start, len(keys) + 1), rng.randrange(1, 7))
        said.append(encode(Settle(rng.randrange(3), rng.randrange(1, 4), [row])))
    if rng.random() < 0.3:
        said.append(encode(Unsubscribe(rng.randrange(3), rng.random() < 0.5)))
    return said


def _body(frame: bytes) -> Any:
    return msgspec.msgpack.decode(unwrap(frame))


def is_whole(frame: bytes) -> bool:
    """Whether its checksum is right, and its parts are where they should be."""
    size = HEADER_BYTES if frame[2:3] == bytes([KIND_BATCH]) else PREFIX_BYTES + 8
    try:
        if len(frame) < size or peek(frame, 0, len(frame)) != (frame[2], len(frame)):
            return False
        verify(frame)
        return True
    except MalformedFrame:
        return False


def _mutate_part(rng: Random, part: Part) -> Part:
    return mutate_frame(rng, part[0]), part[1]


def mutate_frame(rng: Random, frame: bytes) -> bytes:
    """A frame with a changed field and a right checksum, or sometimes with any bytes changed."""
    if rng.random() < 0.1 or not is_whole(frame):
        return mutate_bytes(rng, frame)
    if frame[2] == KIND_MESSAGE:
        kind, *fields = _as_list(_body(frame)) or [0]
        if not fields or rng.random() < 0.03:
            return wrap(KIND_MESSAGE, _pack([rng.randrange(80), *fields]))
        return wrap(KIND_MESSAGE, _pack([kind, *_as_list(mutate_value(rng, fields))]))
    return _mutate_batch(rng, frame)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _pack(body: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(body)
    except (OverflowError, ValueError):  # msgpack has no such number
        return b"\x90"


def _mutate_batch(rng: Random, frame: bytes) -> bytes:
    """Bytes of a batch's header, columns or payloads changed, or a value in a column."""
    if rng.random() < 0.3:
        return _mutate_columns(rng, frame)
    changed = bytearray(frame)
    stop = HEADER_BYTES if rng.random() < 0.7 else len(changed)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(PREFIX_BYTES, stop)
        if rng.random() < 0.3:
            size = rng.choice((2, 4, 8))
            changed[at : at + size] = rng.choice((0, 1, (1 << 8 * size) - 1, 1 << 8 * size - 1)).to_bytes(
                size, "little"
            )
        else:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    del changed[len(frame) :]
    PREFIX.pack_into(changed, 0, *LEAD.unpack_from(changed), checksum(changed))
    return bytes(changed)


def _mutate_columns(rng: Random, frame: bytes) -> bytes:
    """The same batch with other columns."""
    header = list(HEADER.unpack_from(frame))
    start = HEADER_BYTES + pad8(header[TOPIC_LEN])
    stop = start + header[COLUMNS_LEN]
    try:
        columns = msgspec.msgpack.decode(frame[start:stop]) if stop > start else _COLUMNS
    except UNREADABLE:  # a batch that was mutated before
        return frame
    packed = _pack(mutate_value(rng, columns))
    header[COLUMNS_LEN] = len(packed)
    body = frame[HEADER_BYTES:start] + packed + bytes(-len(packed) % 8) + frame[pad8(stop) :]
    header[LENGTH] = HEADER_BYTES + len(body)
    changed = bytearray(HEADER.pack(*header) + body)
    PREFIX.pack_into(changed, 0, *LEAD.unpack_from(changed), checksum(changed))
    return bytes(changed)


# -- identities


def _sources(rng: Random) -> dict[bytes, bytes]:
    """Other sources for those of the conversation, from a pool or new; none, so that events are repeated."""
    if rng.random() < 0.1:
        return {}
    number = rng.randrange(POOL) if rng.random() < 0.7 else rng.getrandbits(40)
    return _Renamed(number)


class _Renamed(dict[bytes, bytes]):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, source: bytes) -> bytes:
        self[source] = self._number.to_bytes(8, "big") + source[:8]
        return self[source]


def _with_sources(frame: bytes, sources: dict[bytes, bytes]) -> bytes:
    if not isinstance(sources, _Renamed) or not is_whole(frame):
        return frame
    if frame[2] == KIND_BATCH:
        changed = bytearray(frame)
        at = PREFIX_BYTES
        changed[at : at + SOURCE_BYTES] = sources[bytes(changed[at : at + SOURCE_BYTES])]
        PREFIX.pack_into(changed, 0, *LEAD.unpack_from(changed), checksum(changed))
        return bytes(changed)
    return wrap(KIND_MESSAGE, _pack(_renamed(_body(frame), sources)))


def _renamed(value: Any, sources: dict[bytes, bytes]) -> Any:
    match value:
        case bytes() if len(value) == SOURCE_BYTES:
            return sources[value]
        case list():
            return [_renamed(one, sources) for one in value]
        case _:
            return value


def _nowhere(frame: bytes) -> bytes:
    """The frame without addresses of other nodes, so that the fuzzed node does not connect to any."""
    if frame[2] != KIND_MESSAGE:
        return frame
    return wrap(KIND_MESSAGE, _pack(_without_addresses(_body(frame))))


def _without_addresses(value: Any) -> Any:
    match value:
        case str() if "://" in value:
            return NOWHERE
        case list():
            return [_without_addresses(one) for one in value]
        case dict():
            return {key: _without_addresses(one) for key, one in value.items()}
        case _:
            return value
