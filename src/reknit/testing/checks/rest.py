"""Checks of machines at rest: nothing is left in their memory, windows are free, and deadlines were met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from reknit.node.core.core import Core
from reknit.protocol.dispatch.pauses import Pauses
from reknit.protocol.publish.publisher import SourcePublisher
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import Queue
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.testing.checks.promise import promise
from reknit.testing.faults import TOPICS
from reknit.topic import Pattern

CORE_EMPTY: Final = (
    "intake._unacked",
    "intake._expecting",
    "dispatch._state._promises",
    "dispatch._state.effects",
    "dispatch.settlement._confirming",
    "dispatch.subscribers._opening",
    "dispatch.subscribers._new",
    "_writer._deferred",
    "openings._searches",
    "recovery.walks._walks",
    "responses.effects",
)
"""What a core at rest has none of."""
QUEUE_EMPTY: Final = (
    "attempts._counts",
    "cursor._early",
    "isolation",
    "lanes._at",
    "lanes._by_key",
    "lanes._ready",
    "retries._heap",
    "unsettled._open",
    "unsettled._waiting",
)
"""What a queue at rest has none of."""
SUBSCRIBER_EMPTY: Final = (
    "_recovered._batches",
    "_recovered._dead",
    "_recovered._given_back",
    "_recovered._scheduled",
    "_recovered._seqs",
    "node.outcomes._rows",
    "node.outcomes._unconfirmed",
    "node.credit._buffered",
    "node.credit._recovered",
)
"""What a subscriber at rest has none of. It is not told which of the events that it gave back became dead letters, so
these stay in `_held._returning`."""
MEMBER_EMPTY: Final = (
    "_arriving",
    "_unwanted._by_series",
    "node.outcomes._rows",
    "node.outcomes._unconfirmed",
)
"""What the machine of a queue's member at rest has none of."""
RECOVERY_EMPTY: Final = ("_search._wanted", "_search._requests", "_held_bytes")
PUBLISHER_EMPTY: Final = ("unacked", "unacked_bytes", "_effects")
TICKS_MAX: Final = 2_000
"""A machine that is due at the same time this often makes no progress."""


def value_at(root: object, path: str) -> object:
    """An attribute of an attribute. It raises if a name is wrong, so that these tables can't be out of date."""
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _left(name: str, root: object, paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if value := value_at(root, path):
            yield f"{name} is at rest with {path} = {value!r}"


@promise("The memory of a node's machines returns to its resting size.")
def cores_forget(name: str, core: Core, connections: int) -> Iterator[str]:
    """`connections` is how many there are."""
    yield from _left(name, core, CORE_EMPTY)
    known = len(core.intake._connections._numbers)
    if known != connections:
        yield f"{name} has {connections} connections, and its intake knows {known}"
    for queue in core.dispatch.queues.values():
        yield from _left(f"{name}'s queue {queue.key}", queue, QUEUE_EMPTY)
        if queue.unsettled.in_flight:
            yield f"{name}'s queue {queue.key} counts {queue.unsettled.in_flight} events in flight"


@promise("Events do not wait for a subscriber that has room for them.")
def room_is_used(core: Core, due: float | None, now: float) -> Iterator[str]:
    """`due` is when the core will do something by itself."""
    if due is not None and due <= now:
        return
    for queue in core.dispatch.queues.values():
        if queue.room > 0 and (queue.cursor.can_read or queue.lanes.is_ready):
            yield f"queue {queue.key} has room for {queue.room} bytes, and events wait at {queue.cursor.position}"


@promise("A topic is resumed when no pattern that matches it is paused any more.")
def pauses_end(pauses: Pauses) -> Iterator[str]:
    patterns = [Pattern(text) for text in pauses.patterns]
    for topic in TOPICS:
        if pauses.is_paused(topic) and not any(pattern.matches(topic) for pattern in patterns):
            yield f"{topic} is paused, and the patterns that are paused are {pauses.patterns}"


@promise("A node has a queue for every subscription, and no other.")
def queues_are_those_of_subscriptions(name: str, queues: int, subscriptions: int) -> Iterator[str]:
    if queues != subscriptions:
        yield f"{name} has {queues} queues for {subscriptions} subscriptions"


@promise("An operator's order is answered.")
def orders_are_answered(name: str, orders: Mapping[int, str]) -> Iterator[str]:
    """`orders` are those that have no answer."""
    for number, what in orders.items():
        yield f"{name} never answered order {number}: {what}"


@promise("The memory of a subscriber returns to its resting size.")
def subscribers_forget(name: str, subscriber: Subscriber, may_hang: bool) -> Iterator[str]:
    """`may_hang` says whether the application may have events that it never settles."""
    yield from _left(name, subscriber, SUBSCRIBER_EMPTY)
    yield from () if may_hang else _left(name, subscriber, ("_held._held._by_series",))
    if subscriber._recovery is not None:
        yield from _left(f"{name}'s recovery", subscriber._recovery, RECOVERY_EMPTY)


@promise("A member of a queue that is at rest has nothing, and its window is free.")
def members_forget(name: str, machine: SharedSubscriber, member: Member, may_hang: bool) -> Iterator[str]:
    """`member` is what its node knows of it; `may_hang` as for `subscribers_forget`."""
    yield from _left(name, machine, MEMBER_EMPTY)
    if not may_hang:
        yield from _left(name, machine, ("_held._held._by_series",))
    if member.events or member.held.ranges():
        yield f"{name} is at rest, and its node counts {member.events} events with it: {member.held.ranges()}"
    window = machine.node.credit
    free = member.credit.granted - member.credit.used + window._owed
    if free != window.size:
        yield f"{name} is at rest, and {free} of its window of {window.size} bytes are free"


@promise("The memory of a publisher returns to its resting size.")
def publishers_forget(name: str, publisher: SourcePublisher) -> Iterator[str]:
    yield from _left(name, publisher, PUBLISHER_EMPTY)


@promise("A subscriber's window returns to its full size.")
def windows_are_free(name: str, subscriber: Subscriber, queue: Queue) -> Iterator[str]:
    window = subscriber.node.credit
    free = queue.credit.granted - queue.credit.used + window._owed
    if free != window.size:
        yield f"{name} is at rest, and {free} of its window of {window.size} bytes are free"


@promise("Every deadline is met: a machine that is due does something.")
def deadlines_are_met(name: str, due: float | None, now: float, ticks: int) -> Iterator[str]:
    """`ticks` is how often the machine was told of the same time."""
    if due is not None and due <= now and ticks > TICKS_MAX:
        yield f"{name} was due at {due:.4f}, and is still due after {ticks} ticks"
