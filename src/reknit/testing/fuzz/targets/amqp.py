"""AMQP 1.0: frames that proton made, with changed fields, other types, and in another order."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Final

from reknit.gateway.amqp.codec.encoding import MalformedValue, encode, listed, skip, symbols, variable
from reknit.testing.fabric.programs.attacks import amqp_frames, mutate_bytes
from reknit.testing.fuzz.capture import amqp_conversations
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import mutate_order
from reknit.testing.fuzz.targets.target import PortTarget, conversation

Part = tuple[bytes, bool]

PARTS_MAX: Final = 20
GREETING: Final = 5
"""Headers, SASL, open and begin."""
HEADER_BYTES: Final = 8
ADDRESSES: Final = (
    "amqps://host:5671/evil/x", "amqp://[::1", "amqp://host:99999/evil/x", "queue://evil/x", "topic://evil/**",
    "queue://", "queue://%zz%ff", "//evil//x", "/evil/x?a=b#c", "amqp:///", "x" * 1_100, "queue://queue://evil",
)  # fmt: skip
VALUES: Final = (
    *(encode(one) for one in ADDRESSES),
    *(
        encode({one: True})
        for one in ("apache.org:selector-filter:string", "x-opt-key", "jms.message.group.id")
    ),
    *(
        encode(one)
        for one in (None, True, False, 0, 1, -1, 1 << 40, 1.5, "", "evil/x", "evil/**", "é", b"", b"x" * 20)
    ),
    *(encode(one) for one in ([], [1], {}, {"a": 1}, "x" * 300)),
    *(b"\x70" + number.to_bytes(4, "big") for number in (0, 1, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)),
    *(b"\x80" + number.to_bytes(8, "big") for number in (0, 1 << 63, (1 << 64) - 1)),
    *(b"\x52\x00", b"\x52\xff", b"\x43", b"\x50\x09", b"\x60\xff\xff"),
    *(variable(0xA3, name) for name in (b"amqp:accepted:list", b"topic", b"copy", b"x" * 260, b"\xff")),
    *(
        b"\xa1\x02\xff\xfe",
        b"\x98" + bytes(16),
        b"\x83" + b"\xff" * 8,
        b"\x73\xff\xff\xff\xff",
        b"\x72\x7f\xc0\x00\x00",
    ),
    *(
        b"\x00\x53\x23\x45",
        b"\x00\x53\x24\x45",
        b"\x00\x53\x25\x45",
        b"\x00\x53\x26\x45",
        b"\x00\x53\x27\x45",
    ),
    *(
        b"\x00\x53\x28\x45",
        b"\x00\x53\x29\x45",
        b"\x00\x53\x30\x45",
        b"\x00" * 40 + b"\x40",
        symbols(["a", "b"]),
    ),
    *(
        b"\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x40",
        b"\xe0\x03\xff\x40\x40",
        b"\xd1\x00\x00\x00\x05\x00\x00\x00\x01\x40",
    ),
)
"""Encoded values of every type, right and wrong."""


class AmqpTarget(PortTarget):
    """Clients of AMQP that break its rules, or the gateway's."""

    name = port = "amqp"

    @cached_property
    def conversations(self) -> list[list[Part]]:
        found = []
        for one in amqp_conversations():
            parts: list[Part] = []
            for turn in one.turns:
                parts += [(frame, False) for frame in turn.said[:-1]]
                parts.append((turn.said[-1], turn.is_answered))
            found.append(parts)
        return found

    @cached_property
    def frames(self) -> list[Part]:
        kinds: dict[bytes, list[Part]] = {}
        for part in (part for one in self.conversations for part in one):
            kinds.setdefault(part[0][4:11], []).append(part)
        return [part for parts in kinds.values() for part in parts[:8]]

    def make(self, rng: Random) -> tuple[Step, ...]:
        greeting, parts = self._some(rng)
        if rng.random() < 0.1:
            greeting, parts = [], greeting + parts
        if rng.random() < 0.97:
            parts = mutate_order(rng, parts, self.frames, _mutate_part)
        return conversation(rng, greeting + parts)

    def _some(self, rng: Random) -> tuple[list[Part], list[Part]]:
        if rng.random() < 0.1 or not self.conversations:
            made = [(part, True) for part in amqp_frames(rng)]
            return made[:3], made[3:]
        whole = rng.choice(self.conversations)
        start = rng.choice(
            (GREETING, GREETING, GREETING, rng.randrange(GREETING, max(GREETING + 1, len(whole))))
        )
        links = whole[GREETING : GREETING + 2] if start > GREETING else []
        return whole[:GREETING], links + whole[start : start + rng.randint(1, PARTS_MAX)]


def _mutate_part(rng: Random, part: Part) -> Part:
    return mutate_amqp(rng, part[0]), part[1]


def mutate_amqp(rng: Random, frame: bytes) -> bytes:
    """Another field in a frame or in one of a message's sections, or other bytes."""
    if len(frame) <= HEADER_BYTES or frame[:4] == b"AMQP" or rng.random() < 0.1:
        return mutate_bytes(rng, frame)
    head, body = bytearray(frame[:HEADER_BYTES]), frame[HEADER_BYTES:]
    if rng.random() < 0.05:
        head[rng.randrange(4, 8)] = rng.choice((0, 1, 2, 3, 0xFF))
    try:
        values = _split(body)
    except MalformedValue:
        return mutate_bytes(rng, frame)
    at = rng.randrange(len(values))
    values[at] = _mutate_value(rng, values[at])
    body = b"".join(values)
    return (HEADER_BYTES + len(body)).to_bytes(4, "big") + bytes(head[4:]) + body


def _split(data: bytes) -> list[bytes]:
    """The values that lie back to back: the performative and the sections of a message."""
    values, at = [], 0
    while at < len(data):
        end = skip(data, at)
        values.append(data[at:end])
        at = end
    return values


def _mutate_value(rng: Random, value: bytes, depth: int = 0) -> bytes:
    if rng.random() < 0.1 or depth > 4 or not value:
        return rng.choice(VALUES)
    if value[0] == 0:
        try:
            end = skip(value, 1)
        except MalformedValue:
            return rng.choice(VALUES)
        if rng.random() < 0.1:
            return b"\x00" + rng.choice((b"\x53" + rng.randbytes(1), *VALUES)) + value[end:]
        return value[:end] + _mutate_value(rng, value[end:], depth + 1)
    start = {0xC0: 3, 0xC1: 3, 0xD0: 9, 0xD1: 9}.get(value[0])
    if start is None:
        return rng.choice(VALUES)
    try:
        fields = _split(value[start:])
    except MalformedValue:
        return rng.choice(VALUES)
    return listed(_mutate_fields(rng, fields, depth), 0xC1 if value[0] in (0xC1, 0xD1) else 0xC0)


def _mutate_fields(rng: Random, fields: list[bytes], depth: int) -> list[bytes]:
    if not fields:
        return [rng.choice(VALUES)]
    at = rng.randrange(len(fields))
    match rng.randrange(8):
        case 0:
            del fields[at]
        case 1:
            fields.insert(at, rng.choice(VALUES))
        case 2:
            fields[at:at] = [fields[at]] * rng.choice((1, 300))
        case _:
            fields[at] = _mutate_value(rng, fields[at], depth + 1)
    return fields
