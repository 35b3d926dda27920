"""The readers' offsets, limits and partitions, with real nodes but without Spark."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from reknit.checkpoint import Checkpoint
from reknit.errors import NotConnected
from reknit.spark.options import InvalidOption
from reknit.spark.source import query_nodes
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import DataLoss, JournalPartition, JournalReplaced
from reknit.spark.source.schema import full_schema
from reknit.spark.source.stream_reader import ReknitStreamReader
from reknit.spark.source.table_reader import ReknitReader
from tests.spark.running_node import RunningNode, batch, batches, source

ALL = ReadAllAvailable()
Make = Callable[..., RunningNode]


made: list[ReknitStreamReader] = []


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    while made:
        made.pop().stop()


def reader(*nodes: RunningNode | str, **options: object) -> ReknitStreamReader:
    urls = ",".join(one if isinstance(one, str) else one.url for one in nodes)
    read = SourceOptions.read({"nodes": urls, **{name: str(value) for name, value in options.items()}})
    made.append(ReknitStreamReader(read, to_arrow_schema(full_schema(read.rows), timezone="UTC")))
    return made[-1]


def rows(stream: ReknitStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """As Spark does it: the partitions and the reader are pickled for the tasks."""
    parts = pickle.loads(pickle.dumps(list(stream.partitions(start, end))))
    task = pickle.loads(pickle.dumps(stream))
    return [row for part in parts for table in task.read(part) for row in table.to_pylist()]


def seqs(found: list[dict[str, Any]], name: str = "s") -> list[int]:
    return [row["seq"] for row in found if row["source"] == source(name)]


def key(node: RunningNode) -> str:
    assert node.node is not None
    return f"{node.name}@{node.node.epoch}"


@pytest.mark.parametrize("journal", ["tcp", "file", "auto"])
def test_reads_on_where_the_offset_says(node: RunningNode, journal: str) -> None:
    node.keep(batches("s", 1, 101))
    stream = reader(node, journal=journal)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert start == {key(node): 0}
    assert seqs(rows(stream, start, end)) == list(range(1, 101))
    node.keep(batches("s", 101, 151))
    later = stream.latestOffset(end, ALL)
    assert seqs(rows(stream, end, later)) == list(range(101, 151))
    assert stream.latestOffset(later, ALL) == later
    assert list(stream.partitions(later, later)) == []


def test_a_table_is_read_in_equal_parts_one_a_core(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.keep([batch("s", seq, [bytes(1 << 20)]) for seq in range(1, 25)])
    monkeypatch.setattr(query_nodes, "STEP_MIN", 1 << 20)
    monkeypatch.setattr(query_nodes, "TABLE_STEP_MAX", 10 << 20)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    read = SourceOptions.read({"nodes": node.url})
    parts = ReknitReader(read, to_arrow_schema(full_schema("events"), timezone="UTC")).partitions()
    spans = [(part.start, part.stop) for part in parts if isinstance(part, JournalPartition)]
    assert [round((stop - start) / (1 << 20)) for start, stop in spans] == [6, 6, 6, 6]
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]


@pytest.mark.parametrize("journal", ["tcp", "file"])
def test_parts_are_the_same_whenever_they_are_planned(node: RunningNode, journal: str) -> None:
    node.keep(batches("s", 1, 501) + batches("t", 1, 501, size=7))
    one = reader(node, journal=journal, partitionBytes=3000)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    parts = list(one.partitions(start, end))
    assert len(parts) > 5
    node.keep(batches("s", 501, 1001))
    assert list(reader(node, journal="tcp", partitionBytes=3000).partitions(start, end)) == parts
    found = rows(one, start, end)
    assert seqs(found) == list(range(1, 501))
    assert seqs(found, "t") == list(range(1, 501))
    assert rows(one, start, end) == found


@pytest.mark.parametrize("journal", ["tcp", "file"])
def test_a_limit_of_events_bounds_each_step(node: RunningNode, journal: str) -> None:
    node.keep(batches("s", 1, 1001, size=10))
    stream = reader(node, journal=journal, maxEventsPerTrigger=250)
    at, steps = stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        steps.append(len(rows(stream, at, end)))
        at = end
    assert steps == [250] * 4


@pytest.mark.parametrize("journal", ["tcp", "file"])
def test_a_limit_of_bytes_bounds_each_step(node: RunningNode, journal: str) -> None:
    node.keep(batches("s", 1, 1001, size=10))
    stream = reader(node, journal=journal, maxBytesPerTrigger="4k")
    at, found = stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        assert end[key(node)] - at[key(node)] < 4096 + 400
        found += seqs(rows(stream, at, end))
        at = end
    assert found == list(range(1, 1001))


def test_a_limit_lets_one_batch_through_at_least(node: RunningNode) -> None:
    node.keep(batches("s", 1, 101, size=50))
    stream = reader(node)
    start = stream.initialOffset()
    assert len(rows(stream, start, stream.latestOffset(start, ReadMaxRows(1)))) == 50
    assert len(rows(stream, start, stream.latestOffset(start, ReadMaxBytes(1)))) == 50


def test_a_limit_is_shared_by_the_nodes(make_node: Make) -> None:
    one, two = make_node("one"), make_node("two")
    one.keep(batches("s", 1, 1001))
    two.keep(batches("t", 1, 31))
    stream = reader(one, two)
    start = stream.initialOffset()
    found = rows(stream, start, stream.latestOffset(start, ReadMaxRows(200)))
    assert (len(seqs(found, "s")), len(seqs(found, "t"))) == (170, 30)


def test_latest_starts_with_what_comes(node: RunningNode) -> None:
    node.keep(batches("s", 1, 11))
    stream = reader(node, start="latest")
    start = stream.initialOffset()
    node.keep(batches("s", 11, 21))
    assert seqs(rows(stream, start, stream.latestOffset(start, ALL))) == list(range(11, 21))


def test_a_checkpoint_starts_behind_its_seqs(node: RunningNode) -> None:
    node.keep(batches("s", 1, 21) + batches("t", 1, 21))
    stream = reader(node, start=Checkpoint({source("s"): 13}))
    start = stream.initialOffset()
    found = rows(stream, start, stream.latestOffset(start, ALL))
    assert seqs(found, "s") == list(range(14, 21))
    assert seqs(found, "t") == list(range(1, 21))


def test_a_time_starts_with_what_was_kept_since(node: RunningNode) -> None:
    node.keep(batches("s", 1, 21))
    past, future = reader(node, start="2001-01-01T00:00:00Z"), reader(node, start="2101-01-01")
    assert past.initialOffset() == {key(node): 0}
    assert future.initialOffset() == future.latestOffset(future.initialOffset(), ALL)


def test_available_now_reads_nothing_newer(node: RunningNode) -> None:
    node.keep(batches("s", 1, 101))
    stream = reader(node)
    at = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    node.keep(batches("s", 101, 201))
    end = stream.latestOffset(at, ReadMaxRows(60))
    last = stream.latestOffset(end, ALL)
    assert seqs(rows(stream, at, end) + rows(stream, end, last)) == list(range(1, 101))
    assert stream.latestOffset(last, ALL) == last


def test_a_node_that_is_away_stands_still_and_the_others_go_on(make_node: Make) -> None:
    one, two = make_node("one"), make_node("two")
    one.keep(batches("s", 1, 11))
    two.keep(batches("t", 1, 11))
    stream = reader(one, two)
    start = stream.initialOffset()
    two.stop()
    end = stream.latestOffset(start, ALL)
    assert end.keys() == start.keys()
    assert seqs(rows(stream, start, end)) == list(range(1, 11))
    progress = stream.reportLatestOffset()
    assert progress is not None
    assert progress[two.url].startswith("away: ")
    two.start()
    later = stream.latestOffset(end, ALL)
    assert seqs(rows(stream, end, later), "t") == list(range(1, 11))


def test_a_node_that_never_answers_is_not_waited_for_each_time(node: RunningNode) -> None:
    node.keep(batches("s", 1, 11))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        stream = reader(node, url, timeoutS=1)
        start = stream.initialOffset()
        assert seqs(rows(stream, start, stream.latestOffset(start, ALL))) == list(range(1, 11))
        silent.settimeout(0.0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it was tried once
            silent.accept()


def test_a_node_that_is_away_can_be_an_error(make_node: Make) -> None:
    one, two = make_node("one"), make_node("two")
    stream = reader(one, two, failOnNodeAway="true")
    start = stream.initialOffset()
    two.stop()
    with pytest.raises(NotConnected, match="failOnNodeAway"):
        stream.latestOffset(start, ALL)


def test_a_node_that_comes_later_is_read_from_the_start(make_node: Make) -> None:
    one, two = make_node("one"), make_node("two")
    two.keep(batches("t", 1, 11))
    two.stop()
    stream = reader(one, two)
    start = stream.initialOffset()
    two.start()
    seen = stream.latestOffset(start, ALL)
    assert rows(stream, start, seen) == []
    assert seqs(rows(stream, seen, stream.latestOffset(seen, ALL)), "t") == list(range(1, 11))


def test_what_is_planned_waits_for_its_node(make_node: Make) -> None:
    node = make_node()
    node.keep(batches("s", 1, 11))
    stream = reader(node, nodeWaitS=0.1, journal="tcp")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    node.stop()
    with pytest.raises(NotConnected, match="was planned with line1@"):
        stream.partitions(start, end)
    node.start()
    assert seqs(rows(stream, start, end)) == list(range(1, 11))


def trimmed(make_node: Make) -> RunningNode:
    """A node that had 2,000 events, most of which retention has removed."""
    node = make_node(retention__bytes_max=20_000, journal__segment_bytes="4 KiB")
    for low in range(1, 2001, 100):
        node.keep(batches("s", low, low + 100))
    assert node.node is not None
    node.node.journal.trim()
    return node


@pytest.mark.parametrize("journal", ["tcp", "file"])
def test_what_retention_removed_is_an_error_that_names_it(make_node: Make, journal: str) -> None:
    node = trimmed(make_node)
    stream = reader(node, journal=journal)
    start = {key(node): 0}
    end = stream.latestOffset(start, ALL)
    with pytest.raises(
        DataLoss, match=r"positions \[0, \d+\) of node line1's .*plant/temp source 73.* before"
    ):
        stream.partitions(start, end)


@pytest.mark.parametrize("journal", ["tcp", "file"])
@pytest.mark.parametrize("kind", ["events", "batches", "outcomes"])
def test_what_retention_removed_can_be_reported_instead(make_node: Make, journal: str, kind: str) -> None:
    node = trimmed(make_node)
    stream = reader(node, journal=journal, failOnDataLoss="false", rows=kind)
    start = {key(node): 0}
    found = rows(stream, start, stream.latestOffset(start, ALL))
    assert node.node is not None
    held_from, held = node.node.journal.start, node.node.journal.first_held("plant/temp", source("s"))
    assert 1 < held < 2000
    if kind == "events":
        assert seqs(found) == list(range(held, 2001))
    elif kind == "outcomes":
        assert [(row["kind"], row["floor"]) for row in found] == [("gone", held_from)]
    else:
        gone = [(row["topic"], row["first"], row["stop"]) for row in found if not row["count"]]
        assert gone == [(None, 0, held_from), ("plant/temp", 1, held)]
        assert found[2]["first"] == held


def test_what_is_removed_between_plan_and_task_is_reported_too(make_node: Make) -> None:
    node = trimmed(make_node)
    assert node.node is not None
    held = node.node.journal.start
    stream = reader(node, failOnDataLoss="false", rows="batches", journal="tcp")
    [part] = stream.partitions({key(node): held}, {key(node): node.node.journal.end})
    for low in range(2001, 4001, 100):
        node.keep(batches("s", low, low + 100))
    node.node.journal.trim()
    found = [row for table in stream.read(part) for row in table.to_pylist()]
    assert (found[0]["count"], found[0]["first"]) == (0, held)


def test_another_journal_under_the_same_name_is_an_error(make_node: Make) -> None:
    node = make_node(journal__kind="memory")
    node.keep(batches("s", 1, 11))
    stream = reader(node)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    node.stop()
    node.start()
    node.keep(batches("s", 1, 6))
    with pytest.raises(JournalReplaced, match="another journal"):
        stream.latestOffset(end, ALL)
    with pytest.raises(JournalReplaced, match="another journal"):
        stream.partitions(start, end)


def test_another_journal_can_be_gone_on_with(make_node: Make) -> None:
    node = make_node(journal__kind="memory")
    node.keep(batches("s", 1, 11))
    stream = reader(node, failOnDataLoss="false", rows="batches")
    old = stream.latestOffset(stream.initialOffset(), ALL)
    node.stop()
    node.start()
    node.keep(batches("s", 1, 6))
    new = stream.latestOffset(old, ALL)
    assert new == {key(node): 0}
    [gone] = rows(stream, old, new)
    assert (gone["count"], gone["position"]) == (0, next(iter(old.values())))
    assert [row["count"] for row in rows(stream, new, stream.latestOffset(new, ALL))] == [5]


def test_the_journal_of_a_stopped_node_can_be_read(node: RunningNode) -> None:
    node.keep(batches("s", 1, 101))
    epoch = key(node)
    node.stop()
    stream = reader(f"{node.directory.as_uri()}#line1")
    start = stream.initialOffset()
    assert start == {epoch: 0}
    assert seqs(rows(stream, start, stream.latestOffset(start, ALL))) == list(range(1, 101))


def test_two_nodes_of_one_name_are_refused(make_node: Make, tmp_path: Any) -> None:
    one = make_node("one")
    other = RunningNode(tmp_path / "other", "one")
    try:
        with pytest.raises(InvalidOption, match="both called one"):
            reader(one, other).initialOffset()
    finally:
        other.close()
