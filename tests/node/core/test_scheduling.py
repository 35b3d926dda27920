"""Scheduled events on a node: published once when it is time, whatever crashes, unless they are cancelled before."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.config import Config, LimitSettings, RetentionSettings
from reknit.errors import JournalFull
from reknit.node.core.core import Core
from reknit.outcome import Code
from reknit.store.log.retention import Retention
from reknit.store.memory import SimJournal
from reknit.topic import schedule_topic
from reknit.wire.codec import Decoder, Frames
from reknit.wire.messages import Ack, Answer, Ask, Refuse

S = 1_000_000
SOURCE = b"s" * 16
TOPIC = "orders/new"


class Node:
    """A node's core whose clock and disk a test drives."""

    def __init__(self, **sections: Any) -> None:
        self.now = 0.0
        self.config = Config(**sections)
        retention = Retention(count_max=self.config.retention.count_max or None)
        self.journal = SimJournal(retention, now_us=lambda: round(self.now * S), segment_bytes=512)
        self.seqs = {SOURCE: 0}
        self.start()

    def start(self) -> None:
        self.said: list[Any] = []
        self._decoder = Decoder()
        self._wanted = 0
        self.core = Core(
            "n1", "epoch", self.journal, self.config, self, Random(1), now_us=lambda: round(self.now * S)
        )

    def restart(self) -> None:
        """Crash, with everything that is not synced, and start again."""
        self.journal = self.journal.crash()
        self.start()
        self.run()

    def send(self, peer: object, buffers: Any) -> None:
        self.said += self._decoder.feed(b"".join(bytes(one) for one in buffers))

    def commit(self, number: int, sync: bool) -> None:
        self._wanted = number

    def run(self) -> None:
        self.core.run(self.now)
        while self.journal.staged_end > self.journal.end:
            self.core.durable(self._wanted, self.journal.commit(), self.now)
            self.core.run(self.now)

    def at(self, now: float) -> None:
        """Everything that is due until then happens."""
        while (due := self.core.next_deadline()) is not None and due <= now:
            self.now = max(self.now, due)
            self.core.tick(self.now)
            self.run()
        self.now = now

    def publish(self, topic: str, payloads: list[bytes], **fields: Any) -> None:
        first = self.seqs.setdefault(SOURCE, 0) + 1
        batch = Batch.build(SOURCE, topic, first, payloads, round(self.now * S), **fields)
        self.core.receive(Frames(bytes(batch.data), [batch.head]), "publisher", self.now)
        self.run()
        self.seqs[SOURCE] += len(payloads)

    def schedule(self, *payloads: bytes, at: float, **columns: list[Any]) -> None:
        times = {"time": [round(at * S)] * len(payloads)}
        self.publish(schedule_topic(TOPIC), list(payloads), columns=times | columns)

    def ask(self, what: str, **args: Any) -> Any:
        self.core.order(Ask(1, what, args), "admin", self.now)
        self.run()
        return [one for one in self.said if isinstance(one, Answer)][-1].body

    def batches(self, topic: str = TOPIC) -> list[Batch]:
        entries = [
            entry
            for source in self.journal.sources(topic)
            for entry in self.journal.find(topic, source, 1, 1 << 62)
        ]
        return [Batch.parse(self.journal.fetch(one)) for one in sorted(entries, key=lambda one: one.position)]

    def published(self, topic: str = TOPIC) -> list[bytes]:
        return [payload for batch in self.batches(topic) for payload in batch.payloads()]


def test_events_are_published_when_it_is_time() -> None:
    node = Node()
    node.schedule(b"late", at=9.0)
    node.schedule(b"early", at=3.0, headers=[{"trace": "7"}], key=["k"])
    assert [one.seq for one in node.said if isinstance(one, Ack)] == [1, 2], "they are durable at once"
    node.at(2.9)
    assert node.published() == []
    node.at(3.0)
    [batch] = node.batches()
    assert batch.payloads() == [b"early"]
    assert batch.time_us == 3 * S
    assert batch.columns() == {"key": ["k"], "headers": [{"trace": "7", "scheduled": f"{SOURCE.hex()}:2"}]}
    node.at(20.0)
    assert node.published() == [b"early", b"late"]


def test_a_time_that_is_past_is_due_at_once() -> None:
    node = Node()
    node.at(50.0)
    node.schedule(b"now", at=1.0)
    node.at(50.0)
    assert node.published() == [b"now"]


def test_they_are_published_once_after_a_restart_however_late() -> None:
    node = Node()
    for number in range(6):
        node.schedule(b"%d" % number, at=1.0 + number)
    node.at(2.0)
    node.restart()
    node.now = 100.0
    node.at(100.0)
    node.restart()
    node.at(200.0)
    assert node.published() == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_crash_between_the_record_and_its_events_publishes_them_once() -> None:
    node = Node()
    node.schedule(b"one", at=1.0)
    before = node.journal.end
    node.now = 1.0
    node.core.tick(1.0)
    node.core.run(1.0)
    record = len(node.journal.state.tail.between(before, node.journal.staged_end)) == 0
    assert record, "nothing is committed yet"
    end = node.journal.commit(sync=False)
    node.journal = node.journal.crash(end - 1)  # the batch is torn, the record is whole
    node.start()
    node.run()
    assert node.published() == []
    node.at(2.0)
    assert node.published() == [b"one"]
    node.restart()
    node.at(3.0)
    assert node.published() == [b"one"]


def test_cancelled_events_are_not_published_after_a_restart_either() -> None:
    node = Node()
    node.schedule(b"a", b"b", at=5.0)
    rows = node.core.scheduling.page({"pattern": "orders/**"})["events"]
    assert [(row["topic"], row["at_us"]) for row in rows] == [(TOPIC, 5 * S)] * 2
    assert node.ask("cancel", pattern=TOPIC, ids=[rows[0]["id"]]) == {"ids": [rows[0]["id"]]}
    assert node.ask("cancel", pattern=TOPIC, ids=[rows[0]["id"]]) == {"ids": []}, "it was cancelled"
    node.restart()
    node.at(6.0)
    assert node.published() == [b"b"]
    assert node.ask("cancel", pattern="**") == {"ids": []}, "it was published"


def test_a_full_journal_delays_them() -> None:
    node = Node()
    node.schedule(b"one", at=1.0)
    room = node.journal.check_room

    def full(size: int) -> None:
        raise JournalFull("the disk is full")

    node.journal.check_room = full  # type: ignore[method-assign]
    node.at(3.0)
    assert node.published() == []
    node.journal.check_room = room  # type: ignore[method-assign]
    node.at(4.0)
    assert node.published() == [b"one"]


def test_a_busy_node_does_not_put_off_what_a_full_journal_delayed() -> None:
    """It is told of the time more often than it tries again, for what else it does."""
    node = Node()
    node.schedule(b"one", at=1.0)
    room = node.journal.check_room

    def full(size: int) -> None:
        raise JournalFull("the disk is full")

    node.journal.check_room = full  # type: ignore[method-assign]
    node.at(1.0)
    node.journal.check_room = room  # type: ignore[method-assign]
    for _ in range(10):
        node.now += 0.1
        node.core.tick(node.now)
        node.run()
    assert node.published() == [b"one"]


def test_retention_spares_them_and_does_not_wait_for_them() -> None:
    node = Node(retention=RetentionSettings(count_max=20))
    node.schedule(b"next year", at=1_000.0)
    first_id = node.core.scheduling.page({})["events"][0]["id"]
    for _ in range(12):
        node.publish("plant/a", [bytes(100)] * 10)
        node.core.trim(node.now)
        node.run()
    assert node.journal.start > 0, "the log is not kept for one event"
    assert node.journal.status().events < 60
    node.restart()
    [row] = node.core.scheduling.page({})["events"]
    assert row["id"] == first_id, "it keeps its id"
    node.at(1_000.0)
    assert node.published() == [b"next year"]
    assert node.batches()[0].columns()["headers"] == [{"scheduled": first_id}]


def test_a_moved_event_can_be_cancelled_under_its_id() -> None:
    node = Node(retention=RetentionSettings(count_max=20))
    node.schedule(b"never", at=1_000.0)
    first_id = node.core.scheduling.page({})["events"][0]["id"]
    for _ in range(12):
        node.publish("plant/a", [bytes(100)] * 10)
        node.core.trim(node.now)
        node.run()
    assert node.ask("cancel", pattern="**", ids=[first_id]) == {"ids": [first_id]}
    node.restart()
    node.at(2_000.0)
    assert node.published() == []


def test_events_beyond_the_limit_become_dead_letters() -> None:
    node = Node(limits=LimitSettings(scheduled_max=1))
    node.schedule(b"a", b"b", at=5.0)
    assert node.core.dead_letters.waiting.count == 1
    node.restart()
    node.at(6.0)
    assert node.published() == [b"a"]


def test_an_event_may_not_be_scheduled_for_a_topic_of_the_node() -> None:
    node = Node()
    node.publish(schedule_topic("reknit/audit"), [b"forged"])
    [refuse] = [one for one in node.said if isinstance(one, Refuse)]
    assert refuse.code == Code.PERMISSION_DENIED


@pytest.mark.parametrize("times", [["soon"], [-1], [1, 2]])
def test_times_that_cannot_be_read_are_refused(times: list[Any]) -> None:
    node = Node()
    node.publish(schedule_topic(TOPIC), [b"x"], columns={"time": times})
    [refuse] = [one for one in node.said if isinstance(one, Refuse)]
    assert refuse.code == Code.INVALID_ARGUMENT
