"""Whatever a peer or a file says: a decoder gives a valid value, or raises `MalformedFrame`, and nothing else."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from reknit import records
from reknit.batch_layout import SEQ_MAX
from reknit.errors import MalformedFrame
from reknit.frame import KIND_MESSAGE, KIND_RECORD, wrap
from reknit.outcome import FinalOutcome
from reknit.wire import codec
from reknit.wire.bundle import ENVELOPE, MESSAGE, PIECE, unbundle
from reknit.wire.codec import AnyMessage
from reknit.wire.groups import AnyGroupMessage, GroupPiece

GROUP, SENDER = 7, b"m" * 16


def decode_message(body: bytes) -> object:
    return codec.decode(wrap(KIND_MESSAGE, body))


def decode_record(body: bytes) -> object:
    return records.decode(wrap(KIND_RECORD, body))


def decode_datagram(body: bytes) -> object:
    envelope = ENVELOPE.pack(0x4752, 1, 0, 0, GROUP, SENDER, 0)
    [item] = unbundle(envelope + MESSAGE.pack(2, 0, 0, len(body)) + body, GROUP)[1]
    return item


DECODERS: dict[Callable[[bytes], object], tuple[type[msgspec.Struct], ...]] = {
    decode_message: get_args(AnyMessage),
    decode_record: get_args(records.Record),
    decode_datagram: get_args(AnyGroupMessage),
}
KINDS = [(decode, kind) for decode, kinds in DECODERS.items() for kind in kinds]

HOSTILE = st.one_of(
    st.sampled_from([-1, 0, 1, SEQ_MAX, SEQ_MAX + 1, (1 << 64) - 1, -(1 << 63)]),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.5, 1e300]),
    st.sampled_from([None, True, "", b"", "a//b", "\0", [], {}, [[9, 2]], [[-5, 3]], [[1]], {"a": math.nan}]),
    st.binary(max_size=20),
    st.text(max_size=8),
)


def valid(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Plain values that fit a field, and some that do not: its limits, and ranges that are reversed."""
    match kind:
        case inspect.IntType(ge=ge, le=le, lt=lt):
            high = le if le is not None else lt - 1 if lt is not None else (1 << 64) - 1
            return st.sampled_from([ge or 0, (ge or 0) + 1, 5, 9, int(high)])
        case inspect.FloatType():
            return st.sampled_from([0.0, 1.5, 3600])
        case inspect.BytesType(max_length=high):
            return st.just(b"s" * (high or 3))
        case inspect.StrType():
            return st.sampled_from(["", "plant/a", "10.0.0.1:7"])
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.EnumType(cls=cls):
            return st.sampled_from([member.value for member in cls])
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return st.lists(valid(item), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(valid, items)).map(list)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(valid(key), valid(value), max_size=2)
        case inspect.UnionType(types=types):
            return st.one_of(*map(valid, types))
        case inspect.NoneType():
            return st.none()
        case inspect.StructType():
            return packed(kind)
        case _:
            return HOSTILE


def packed(kind: inspect.StructType) -> st.SearchStrategy[Any]:
    """The plain form of a struct: a list or a map, with the tag first."""
    fields = [valid(field.type) for field in kind.fields]
    if not kind.array_like:
        names = [field.encode_name for field in kind.fields]
        return st.fixed_dictionaries({}, optional=dict(zip(names, fields, strict=True)))
    tag = [] if kind.tag is None else [st.just(kind.tag)]
    fitting = st.tuples(*tag, *fields).map(list)
    return st.one_of(fitting, st.tuples(fitting, st.integers(0, 20), HOSTILE).map(with_one_changed))


def with_one_changed(drawn: tuple[list[Any], int, Any]) -> list[Any]:
    """One of the fields has a value of any kind."""
    raw, at, value = drawn
    return [value if 0 < index == at else one for index, one in enumerate(raw)]


def sound(value: object) -> Iterator[bool]:
    """Whether everything in a decoded value is in its range."""
    if isinstance(value, float):
        yield math.isfinite(value) and value >= 0
    elif isinstance(value, int):
        yield -1 <= value < 1 << 64
    elif isinstance(value, msgspec.Struct):
        if {"start", "stop"} <= set(value.__struct_fields__):
            yield 0 < value.start <= value.stop <= SEQ_MAX  # type: ignore[attr-defined]
        for name in value.__struct_fields__:
            if name in ("args", "body"):  # anything that msgpack has; whoever reads it checks it
                continue
            if name == "code" and isinstance(value, (records.OutcomeRow, records.AttemptRow)):
                continue  # older versions stored any number
            part = getattr(value, name)
            if name in ("ranges", "covered") and not isinstance(
                value, records.LossesKnown
            ):  # its are structs
                yield all(0 < start <= stop <= SEQ_MAX for start, stop in part)
            if name == "source":
                yield len(part) in (0, 16)
            yield from sound(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from sound(part)
    elif isinstance(value, dict):
        yield from sound(list(value.values()))


@pytest.mark.parametrize(("decode", "kind"), KINDS, ids=[f"{d.__name__} {k.__name__}" for d, k in KINDS])
def test_a_message_with_any_fields_is_sound_or_malformed(
    decode: Callable[[bytes], object], kind: type[msgspec.Struct]
) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    accepted: list[object] = []

    @settings(max_examples=60, deadline=None)
    @given(packed(info))
    def decode_any(raw: object) -> None:
        with contextlib.suppress(MalformedFrame):
            made = decode(msgspec.msgpack.encode(raw))
            assert type(made) is kind
            assert all(sound(made))
            accepted.append(made)

    decode_any()
    assert accepted, "no valid message was among them: the test tests nothing"


@pytest.mark.parametrize("decode", DECODERS, ids=[decode.__name__ for decode in DECODERS])
def test_a_message_with_changed_bytes_is_sound_or_malformed(decode: Callable[[bytes], object]) -> None:
    infos = [inspect.type_info(kind) for kind in DECODERS[decode]]
    kinds = [info for info in infos if isinstance(info, inspect.StructType)]

    @settings(max_examples=1000, deadline=None)
    @given(st.sampled_from(kinds).flatmap(packed), st.data())
    def decode_changed(raw: object, data: st.DataObject) -> None:
        body = bytearray(msgspec.msgpack.encode(raw))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(body)))
            body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        with contextlib.suppress(MalformedFrame):
            assert all(sound(decode(bytes(body))))

    decode_changed()


@pytest.mark.parametrize("code", [-1, 500])
def test_a_record_with_a_code_that_is_none_can_be_read(code: int) -> None:
    row = records.OutcomeRow("a", b"s" * 16, 1, 2, FinalOutcome.DEAD_LETTERED, code)
    record = records.Outcomes("audit", [row])
    assert records.decode(records.encode(record)) == record


U16, U32, U64 = st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)


@settings(deadline=None)
@example((0, 0, 8, 0, (1 << 64) - 1, 1, 8), 0, b"x" * 8)
@example((0, 0, 8, 0, 1, 1, 8), (1 << 64) - 1, b"x" * 8)
@example((0, 0, 8, 0, 1, 1, 8), 0, b"x" * 8)
@given(st.tuples(st.booleans(), U16, U16, U16, U64, U32, U32), U64, st.binary(max_size=64))
def test_a_piece_with_any_numbers_is_sound_or_malformed(
    numbers: tuple[int, ...], stable: int, data: bytes
) -> None:
    envelope = ENVELOPE.pack(0x4752, 1, 0, 0, GROUP, SENDER, stable)
    with contextlib.suppress(MalformedFrame):
        for piece in unbundle(envelope + PIECE.pack(1, *numbers) + data, GROUP)[1]:
            assert isinstance(piece, GroupPiece)
            assert 0 < piece.first < piece.first + piece.count <= SEQ_MAX
            assert 0 <= piece.stable <= SEQ_MAX
            assert len(piece.source) == 16
            assert 0 < len(piece.data) <= piece.size


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_body_is_a_message_or_malformed(body: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(MalformedFrame):
            assert all(sound(decode(body)))
