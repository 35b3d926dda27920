"""The named places of the header are where a batch that was built has these fields, and columns are checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reknit.batch import Batch
from reknit.batch_layout import (
    COLUMNS_LEN,
    COLUMNS_LEN_AT,
    COUNT,
    COUNT_AT,
    HEADER,
    HEADER_BYTES,
    TOPIC_LEN,
    pack,
    sections,
)
from reknit.errors import MalformedFrame

TOPIC = "plant/line1/temp"
PAYLOADS = [b"21.5", b"21.75", b""]


@pytest.mark.parametrize("columns", [None, {"ttl": [1, 2, 3]}, {"headers": [{"a": "b"}, None, None]}])
def test_a_built_batch_has_its_fields_where_the_layout_says(columns: dict[str, list[object]] | None) -> None:
    batch = Batch.build(bytes(range(16)), TOPIC, 7, PAYLOADS, time_us=1, columns=columns)
    packed = msgspec.msgpack.encode(columns) if columns else b""
    fields = HEADER.unpack_from(batch.data)
    assert fields[TOPIC_LEN] == len(TOPIC)
    assert fields[COUNT] == int.from_bytes(batch.data[COUNT_AT], "little") == len(PAYLOADS)
    assert fields[COLUMNS_LEN] == int.from_bytes(batch.data[COLUMNS_LEN_AT], "little") == len(packed)
    columns_at, lengths_at, block_at = sections(len(TOPIC), len(packed), len(PAYLOADS))
    data = bytes(batch.data)
    assert data[HEADER_BYTES : HEADER_BYTES + len(TOPIC)] == TOPIC.encode()
    assert data[columns_at : columns_at + len(packed)] == packed
    assert data[lengths_at : lengths_at + 12] == b"".join(len(p).to_bytes(4, "little") for p in PAYLOADS)
    assert data[block_at : block_at + 9] == b"".join(PAYLOADS)


@pytest.mark.parametrize(
    "columns",
    [
        {"time": [1, -1]},
        {"time": [1, 1 << 62]},
        {"time": [1, 1.5]},
        {"time": [True, 1]},
        {"ttl": [1, 1 << 32]},
        {"headers": [{"a": 1}, None]},
        {"headers": [{1: "a"}, None]},
        {"headers": ["a", None]},
        {"key": 7},
        {"key": ["a"]},
    ],
    ids=repr,
)
def test_a_column_with_other_values_than_readers_expect_is_refused(columns: dict[str, Any]) -> None:
    lengths = [1, 1]
    _, data = pack(b"s" * 16, TOPIC, 1, [b"a", b"b"], 1, 0, 1, 1, columns, 0, lengths)
    with pytest.raises(MalformedFrame, match="column"):
        Batch.parse(bytes(data))
