"""Events that a member of a group received and its application has not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from operator import length_hint

from reknit.batch import Batch
from reknit.client.group.journal import GroupJournal
from reknit.connection.futures import resolve
from reknit.event import Event
from reknit.protocol.multicast.effects import LostEvents


class GroupInbox:
    """A queue for one reader. `on_read(source, seq)` is called when the application has events: they are acked then.

    A reader sees a series without holes up to the last event that it gets. Whatever it does not get any more goes to
    `on_unread(source, start, stop)`.
    """

    def __init__(
        self,
        on_read: Callable[[bytes, int], None],
        on_unread: Callable[[bytes, int, int], None],
        journal: GroupJournal | None,
    ) -> None:
        self._on_read = on_read
        self._on_unread = on_unread
        self._journal = journal
        self._is_closed = False
        self.is_ended = False
        """Whether `end` was called: nothing more may be added."""
        self._items: deque[Batch | LostEvents] = deque()
        self._open: list[Event] = []
        """The events of the batch that is being read, except the last one."""
        self._events: Iterator[Event] = iter(self._open)
        self._last: Event | None = None
        """The last event of the batch that is being read: with it, the application has all of them."""
        self._reader: asyncio.Future[None] | None = None

    def add(self, item: Batch | LostEvents) -> None:
        """Events came, or are lost."""
        assert not self.is_ended, "nobody would read it"
        self._items.append(item)
        resolve(self._reader)

    def close(self) -> None:
        """Nothing more comes: reading ends after the events that are here."""
        self._is_closed = True
        resolve(self._reader)

    def end(self) -> None:
        """End the reader now: what it has not read is acked and counts as unread.

        Unread events would hold up the senders, and a reader that went on after them would see a hole.
        """
        self._is_closed = self.is_ended = True
        if self._last is not None:
            batch, self._last = self._last.batch, None
            start = batch.stop - 1 - length_hint(self._events)
            self._open.clear()  # a reader in the middle of the batch finds its end
            self._read(batch)
            self._on_unread(batch.source, start, batch.stop)
        while self._items:
            item = self._items.popleft()
            self._read(item)
            if isinstance(item, Batch):
                self._on_unread(item.source, item.first, item.stop)
        resolve(self._reader)

    # -- reading

    async def events(self) -> AsyncIterator[Event]:
        """Events as they come. A reader that stops and starts again gets the next one."""
        while True:
            for event in self._events:
                yield event
            if self._last is None:  # all of a batch is read, or reading was ended
                batch = await self._next()
                if batch is None:
                    return
                self._open = batch.events()
                self._last = self._open.pop()
                self._events = iter(self._open)
            else:
                last, self._last = self._last, None
                self._read(last.batch)
                yield last

    async def batches(self) -> AsyncIterator[Batch]:
        """The same, a batch at a time."""
        while (batch := await self._next()) is not None:
            self._read(batch)
            yield batch

    async def take(self) -> list[Batch]:
        """All batches that have arrived, at least one; an empty list at the end."""
        batch = await self._next()
        taken = [] if batch is None else [batch]
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Batch):
                taken.append(item)
            else:
                self._read(item)
        for batch in taken:
            self._read(batch)
        return taken

    async def _next(self) -> Batch | None:
        """The next batch; None at the end."""
        while True:
            if self._journal is not None and not self._journal.has_room:
                await self._journal.room()
            while self._items:
                item = self._items.popleft()
                if isinstance(item, Batch):
                    return item
                self._read(item)
            if self._is_closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def _read(self, item: Batch | LostEvents) -> None:
        self._on_read(item.source, item.stop - 1)
