"""A group for programs with threads: the same member, run by the session's loop in its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from reknit.batch import Batch
from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.group.group import SETTLE_S, Group
from reknit.client.group.ledger import GroupLedger
from reknit.event import Event
from reknit.frame import Buffer
from reknit.protocol.multicast.effects import LostEvents
from reknit.view import Member, View


class SyncGroup:
    """Made by `session.group(name)`; a member while in its `with`. One thread at a time reads; any may send."""

    def __init__(self, thread: LoopThread, group: Group) -> None:
        self._thread, self._group = thread, group
        self._batches: deque[Batch] = deque()
        self._events: deque[Event] = deque()

    def __enter__(self) -> SyncGroup:
        self._thread.run(self._group.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        self.close(settle_s=0.0 if kind is not None else SETTLE_S)

    def close(self, settle_s: float = SETTLE_S) -> None:
        """Wait until the members have every event that was sent, then leave."""
        self._thread.run(self._group.close(settle_s))

    # -- members

    @property
    def name(self) -> str:
        return self._group.name

    @property
    def topic(self) -> str:
        return self._group.topic

    @property
    def members(self) -> tuple[Member, ...]:
        """The members by rank, this one among them."""
        return self._group.members

    @property
    def me(self) -> Member:
        """This member, for the `give` of the other members."""
        return self._group.me

    def give(self, members: Sequence[Member]) -> None:
        """Set the members, this one among them: for a group that was joined with `is_given`."""
        self._thread.call(lambda: self._group.give(members))

    def name_of(self, source: bytes) -> str:
        """A member's name, or its id if it has no name or is gone."""
        return self._group.name_of(source)

    @property
    def ledger(self) -> GroupLedger:
        """Every event's outcome: delivered or lost, by source; dead-lettered, by member."""
        return self._group.ledger

    @property
    def on_view(self) -> Callable[[View], None]:
        """Called with every new view, on the loop's thread; so is `on_lost`."""
        return self._group.on_view

    @on_view.setter
    def on_view(self, callback: Callable[[View], None]) -> None:
        self._group.on_view = callback

    @property
    def on_lost(self) -> Callable[[LostEvents], None]:
        """Called with ranges that could not be recovered."""
        return self._group.on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LostEvents], None]) -> None:
        self._group.on_lost = callback

    # -- sending

    def send(self, payload: Buffer, timeout_s: float | None = None) -> None:
        """Send an event; wait while the window is full. For many events, `send_many` is far faster."""
        self._thread.run(self._group.send_many([payload], timeout_s))

    def send_many(self, payloads: Sequence[Buffer], timeout_s: float | None = None) -> None:
        """Send events in this order; wait as `send` does."""
        self._thread.run(self._group.send_many(payloads, timeout_s))

    def settled(self) -> None:
        """Wait until every member's application has everything that this member sent so far."""
        self._thread.run(self._group.settled())

    # -- receiving

    def __iter__(self) -> Iterator[Event]:
        """Events as they come. A reader that stops and starts again gets the next one."""
        while self._events or self._more():
            yield self._events.popleft()

    def batches(self) -> Iterator[Batch]:
        """The same, a batch at a time."""
        while self._batches or self._take():
            yield self._batches.popleft()

    def _more(self) -> bool:
        """Make events of the next batch; False after the group is left and everything is read."""
        while not self._events:
            if not self._batches and not self._take():
                return False
            self._events += self._batches.popleft().events()
        return True

    def _take(self) -> bool:
        self._batches += self._thread.run(self._group.take())
        return bool(self._batches)
