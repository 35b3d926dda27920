"""What was scheduled, cancelled and published later, as it was seen from outside."""

from __future__ import annotations

from collections.abc import Iterable

from reknit.batch import Batch
from reknit.lineage import lasting_source
from reknit.testing.checks.dead_letters import redrive_source
from reknit.testing.dead_letters import JudgedNode
from reknit.topic import is_scheduled

PRIORITIES = range(7)


def later_sources(topic: str, node: JudgedNode) -> list[bytes]:
    """The sources under which a node publishes scheduled events on a topic, or stores them again."""
    return [lasting_source(f"scheduled\0{topic}\0{one}", node.journal.id) for one in PRIORITIES]


class ScheduledEvents:
    """By node and id: what operators did, and when events were published. No two events have the same payload."""

    def __init__(self) -> None:
        self.due_us: dict[bytes, int] = {}
        self.published_us: dict[tuple[str, bytes], list[int]] = {}
        self.asked: set[tuple[str, str]] = set()
        """Somebody wanted to cancel these: a crash may have undone it."""
        self.told: set[tuple[str, str]] = set()
        """Somebody was told that these are cancelled."""
        self.redriven: set[tuple[str, bytes]] = set()
        """Events that operators made to be scheduled again."""
        self._read_to: dict[str, int] = {}

    def put(self, payloads: Iterable[bytes], due_us: Iterable[int]) -> None:
        """A program schedules events."""
        self.due_us.update(zip(payloads, due_us, strict=True))

    def cancelling(self, node: str, ids: Iterable[str]) -> None:
        """An operator tells a node to cancel events."""
        self.asked.update((node, one) for one in ids)

    def cancelled(self, node: str, ids: Iterable[str]) -> None:
        """A node answers that it cancelled events."""
        self.told.update((node, one) for one in ids)

    def read(self, node: JudgedNode) -> None:
        """Look for events that were published since the last call, before retention may remove them."""
        journal = node.journal
        position = max(self._read_to.get(node.name, 0), journal.start)
        while position < journal.end:
            run = journal.read(position)
            for entry in run.entries:
                head = entry.head
                if entry.position < position:
                    continue
                if is_scheduled(head.topic):
                    self._read_scheduled(node, head.source, Batch.parse(journal.fetch(entry)))
                    continue
                if head.source in later_sources(head.topic, node):
                    batch = Batch.parse(journal.fetch(entry))
                    for payload in batch.payloads():
                        self.published_us.setdefault((node.name, payload), []).append(batch.time_us)
            position = run.next_position
        self._read_to[node.name] = position

    def _read_scheduled(self, node: JudgedNode, source: bytes, batch: Batch) -> None:
        """Operators redrive dead letters of those who subscribe to scheduled events: these are scheduled again."""
        if source == redrive_source(node.name, batch.topic, node.journal.id):
            self.redriven.update((node.name, bytes(payload)) for payload in batch.payloads())
