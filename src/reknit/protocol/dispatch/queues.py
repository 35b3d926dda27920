"""All queues of a node: by subscription, by durable name, by topic, and those for which something is due by time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reknit.protocol.dispatch.inputs import QueueKey
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.machine import Peer
from reknit.topic_index import TopicIndex


class QueueRegistry:
    """Finds queues. A durable name has at most one queue."""

    def __init__(self) -> None:
        self._by_key: dict[QueueKey, Queue] = {}
        self._by_name: dict[str, Queue] = {}
        self._index: TopicIndex[Queue] = TopicIndex()
        self._scheduled: dict[Queue, None] = {}
        """The queues that may have something due: a retry, or the end of a lease."""

    @property
    def by_key(self) -> Mapping[QueueKey, Queue]:
        return self._by_key

    @property
    def by_name(self) -> Mapping[str, Queue]:
        """The queues of durable subscribers."""
        return self._by_name

    def get(self, key: QueueKey) -> Queue | None:
        return self._by_key.get(key)

    def named(self, name: str) -> Queue | None:
        return self._by_name.get(name)

    def matching(self, topic: str) -> Iterable[Queue]:
        """The queues whose pattern matches a topic."""
        return self._index.match(topic)

    def of_peer(self, peer: Peer) -> list[Queue]:
        return [queue for key, queue in self._by_key.items() if key[0] == peer]

    def add(self, queue: Queue, has_account: bool) -> None:
        """A subscription begins. A durable subscriber has an account in the ledger."""
        self._by_key[queue.key] = queue
        if has_account:
            self._by_name[queue.name] = queue
        self._index.add(queue.pattern, queue)

    def remove(self, queue: Queue) -> None:
        """A subscription ended."""
        del self._by_key[queue.key]
        self._scheduled.pop(queue, None)
        self._index.remove(queue.pattern, queue)
        if self._by_name.get(queue.name) is queue:
            del self._by_name[queue.name]

    # -- what is due by time

    def schedule(self, queue: Queue) -> None:
        """Something is due for a queue at some time."""
        self._scheduled[queue] = None

    def unschedule(self, queue: Queue) -> None:
        """Nothing is due for a queue any more."""
        self._scheduled.pop(queue, None)

    def scheduled(self) -> Iterable[Queue]:
        """The queues that may have something due. Copy this before scheduling others."""
        return self._scheduled
