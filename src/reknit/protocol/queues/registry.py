"""All queues of a node: by subscription, by durable name, by topic, and those for which something is due by time.

A queue with members is here under a key of its own, and found by the subscriptions of its members, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reknit.protocol.machine import Peer
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import Queue, QueueKey, Recipient
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.topic_index import TopicIndex


class QueueRegistry:
    """Finds queues. A durable name has at most one queue."""

    def __init__(self) -> None:
        self._by_key: dict[QueueKey, Queue] = {}
        self._by_name: dict[str, Queue] = {}
        self._by_member: dict[QueueKey, SharedQueue] = {}
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
        """The queue of a subscription. If that is a member, it is served."""
        queue = self._by_key.get(key)
        if queue is None and (shared := self._by_member.get(key)) is not None:
            shared.serve(key)
            return shared
        return queue

    def __contains__(self, key: QueueKey) -> bool:
        """Whether a subscription is open."""
        return key in self._by_key or key in self._by_member

    def __getitem__(self, key: QueueKey) -> Queue:
        queue = self.get(key)
        if queue is None:
            raise KeyError(key)
        return queue

    def values(self) -> Iterable[Queue]:
        """Every queue, once."""
        return self._by_key.values()

    def is_open(self, recipient: Recipient) -> bool:
        """Whether a subscription has not ended."""
        key = recipient.key
        if self._by_key.get(key) is recipient:
            return True
        shared = self._by_member.get(key)
        return shared is not None and shared.members.get(key) is recipient

    def subscriptions(self) -> Iterator[tuple[QueueKey, Queue]]:
        """Every subscription, with its queue."""
        yield from ((key, queue) for key, queue in self._by_key.items() if not queue.is_shared)
        yield from self._by_member.items()

    @property
    def subscription_count(self) -> int:
        shared = len(set(self._by_member.values())) if self._by_member else 0
        return len(self._by_key) - shared + len(self._by_member)

    def named(self, name: str) -> Queue | None:
        return self._by_name.get(name)

    def matching(self, topic: str) -> Iterable[Queue]:
        """The queues whose pattern matches a topic."""
        return self._index.match(topic)

    def of_peer(self, peer: Peer) -> list[QueueKey]:
        """The subscriptions of a peer."""
        return [key for key, _ in self.subscriptions() if key[0] == peer]

    def add(self, queue: Queue, has_account: bool) -> None:
        """A subscription begins. A durable subscriber has an account in the ledger."""
        self._by_key[queue.key] = queue
        if has_account:
            self._by_name[queue.name] = queue
        self._index.add(queue.pattern, queue)
        if isinstance(queue, SharedQueue):
            self._by_member.update(dict.fromkeys(queue.members, queue))

    def join(self, queue: SharedQueue, member: Member) -> None:
        """A subscription becomes a member of a queue."""
        queue.join(member)
        self._by_member[member.key] = queue

    def leave(self, queue: SharedQueue, key: QueueKey) -> None:
        """A member that holds nothing leaves its queue. The last one takes the queue with it."""
        queue.leave(key)
        del self._by_member[key]
        if not queue.members:
            self.remove(queue)

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
