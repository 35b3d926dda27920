"""A redrive publishes everything that a dead letter's event carried, under a new id."""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql import SparkSession

from reknit.batch import Batch
from reknit.dead_letter import DeadLetterContent
from reknit.envelope.columns import ID
from reknit.private_topics import private_topic
from reknit.spark.sink.options import SinkOptions
from reknit.spark.sink.publisher import BATCH_COLUMN
from reknit.spark.stages.dead_letters import letter_row
from reknit.spark.stages.redrive import on_public_topics
from reknit.spark.stages.redriven_events import RedrivenEvent, grouped, put
from tests.spark.running_node import RunningNode

SOURCE = b"a" * 16


def letter(seq: int = 7, **fields: Any) -> DeadLetterContent:
    own = {"columns": {"headers": {"h": "v"}, "key": "k"}, "priority": 5, "ttl_ms": 600_000}
    made = DeadLetterContent("plant/x", SOURCE, seq, 1, b"x", "audit", 3, "rejected", "", 1, "n1", 2)
    return msgspec.structs.replace(made, **{**own, **fields})


def event(made: DeadLetterContent) -> RedrivenEvent:
    """The event as it comes out of table `dead_letters`."""
    captured = {"source": b"l" * 16, "seq": 1, "payload": msgspec.msgpack.encode(made)}
    return RedrivenEvent.of_row(letter_row(captured))


def test_everything_but_the_id_and_the_times_is_kept() -> None:
    columns = {"headers": {"h": "v"}, "key": "k", "time": 5, "ttl": 600_000, ID: b"i" * 16, BATCH_COLUMN: 3}
    made = event(letter(columns=columns, type=2, flags=4))
    assert (made.topic, made.payload, made.ttl_ms, made.priority, made.type, made.flags) == (
        *("plant/x", b"x", 600_000, 5, 2, 4),
    )
    assert made.columns["key"] == "k"
    assert made.columns["headers"] == {
        "h": "v",
        "redriven": f"{SOURCE.hex()}:7",
        "redriven-count": "1",
        "redriven-for": "audit",
        "redriven-reason": "rejected",
    }
    assert made.columns[ID] != b"i" * 16
    assert len(made.columns[ID]) == 16
    assert not {"time", "ttl"} & made.columns.keys()


def test_event_that_is_redriven_again_keeps_its_first_id() -> None:
    made = event(letter(redriven=1, original="00:1"))
    assert (made.columns["headers"]["redriven"], made.columns["headers"]["redriven-count"]) == ("00:1", "2")


def test_letter_without_payload_and_one_that_is_none_are_not_whole() -> None:
    row = {"source": b"l" * 16, "seq": 1}
    without = letter_row({**row, "payload": msgspec.msgpack.encode(letter(has_payload=False, payload=b""))})
    assert without["has_payload"] is False
    broken = letter_row({**row, "topic": "reknit/dead-letters", "time": None, "payload": b"?"})
    assert (broken["reason"], broken["has_payload"], broken["fields"]) == ("malformed", None, None)


def test_only_events_of_one_kind_share_a_batch() -> None:
    events = [event(letter(seq, priority=p)) for seq, p in ((1, 4), (2, 4), (3, 5), (4, 5), (5, 4))]
    assert [len(group) for group in grouped(events, 10)] == [2, 2, 1]
    assert [len(group) for group in grouped(events[:2], 1)] == [1, 1]


def test_batches_have_the_fields_of_their_events(node: RunningNode) -> None:
    from reknit.spark.blocking_connection import BlockingConnection
    from reknit.spark.sink.publisher import SinkPublisher

    publisher = SinkPublisher(SinkOptions((node.url,)), "redrive", 0, 0)
    for ttl_ms in (None, 9):
        for group in grouped(
            [event(letter(1)), event(letter(2, ttl_ms=5)), event(letter(3, priority=4))], 10
        ):
            put(publisher, group, ttl_ms)
    publisher.close()
    with BlockingConnection(node.url) as link:
        found = [Batch.parse(data, at) for _, data in link.read(0, link.span().end) for at in _places(data)]
    events = [one for batch in found for one in batch.events()]
    assert [(one.ttl_ms, one.batch.head.priority) for one in events] == [
        *((600_000, 5), (5, 5), (600_000, 4)),
        *((9, 5), (9, 5), (9, 4)),
    ]
    assert {one.headers["h"] for one in events} == {"v"}


def _places(data: memoryview) -> list[int]:
    places, at = [], 0
    while at < len(data):
        places.append(at)
        at += Batch.parse(data, at).head.length
    return places


def test_letter_of_an_event_for_one_subscriber_goes_back_to_everybody(spark: SparkSession) -> None:
    topics = [private_topic("queue/work", "plant/a"), "plant/b"]
    letters = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    assert [row["topic"] for row in on_public_topics(letters).collect()] == ["plant/a", "plant/b"]
