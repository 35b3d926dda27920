from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from reknit.spark.options import InvalidOption
from reknit.spark.sink.options import SinkOptions
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.schema import BATCHES, EVENTS, KINDS, OUTCOMES, check_schema, full_schema
from reknit.topic import Pattern


def test_every_kind_of_row_begins_with_its_place() -> None:
    for rows in KINDS:
        assert full_schema(rows).names[:2] == ["node", "position"]
    assert "payload" in EVENTS.names
    assert "data" in BATCHES.names
    assert "end" in OUTCOMES.names


def test_a_schema_may_pick_and_reorder_columns() -> None:
    wanted = StructType([StructField("seq", LongType()), StructField("topic", StringType())])
    assert check_schema("events", wanted) is wanted


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [("colour", StringType(), "not a column"), ("seq", StringType(), "another type: bigint")],
)
def test_a_schema_that_can_not_be_given_is_refused(name: str, kind: StringType, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        check_schema("events", StructType([StructField(name, kind)]))


def test_options_are_read_whatever_their_case() -> None:
    options = SourceOptions.read(
        {
            "NODES": "tcp://a, tcp://b",
            "maxeventspertrigger": "5",
            "partition_bytes": "1m",
            "topics": "a/*,b/**",
        }
    )
    assert options.nodes == ("tcp://a", "tcp://b")
    assert (options.max_events_per_trigger, options.partition_bytes) == (5, 1 << 20)
    assert options.topics == (Pattern("a/*"), Pattern("b/**"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "option nodes of format 'reknit': it is required"),
        ({"nodes": "tcp://a", "rows": "lines"}, "'lines' is not one of events, batches, outcomes"),
        (
            {"nodes": "tcp://a", "start": "yesterday"},
            "'yesterday' is not one of earliest, latest, a checkpoint",
        ),
        ({"nodes": "tcp://a", "start": "c1.xyz"}, "checkpoint 'c1.xyz' is cut off"),
        ({"nodes": "tcp://a", "maxEventsPerTrigger": "0"}, "not a whole number above 0"),
        ({"nodes": "tcp://a", "maxBytesPerTrigger": "lots"}, "is not a size"),
        ({"nodes": "tcp://a", "topics": "a//b"}, "topics"),
        ({"nodes": "tcp://a", "failOnDataLost": "true"}, "did you mean failOnDataLoss"),
    ],
)
def test_an_option_that_can_not_be_is_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        SourceOptions.read(options)


def test_a_sink_has_one_node() -> None:
    with pytest.raises(InvalidOption, match="must be one node"):
        SinkOptions.read({"nodes": "tcp://a,tcp://b"})
