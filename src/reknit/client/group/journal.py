"""A group's events go to the node of a member's session too: groups are topics.

Every member that has a session brings the events that it received, as the batches that came and under their own
sources and seqs. The node takes each event once: it drops the copies of other members by a range check. If the node
misses events and no member brings them in time, they are lost, and the node's ledger says so.

A node begins a source with the first event that it gets of it. So a member that joined after a sender had begun asks the
node whether it knows that source, and gives others time to bring the first events if it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reknit.batch import Batch
from reknit.client.message_router import MessageRouter
from reknit.connection.publish_driver import PublishDriver
from reknit.errors import LocalError, NotConnected, Refused, ReknitError
from reknit.outcome import Code
from reknit.protocol.machine import Connected, Disconnected
from reknit.protocol.publish import publisher as machines
from reknit.wire.messages import Ack, Expect, Refuse

log = logging.getLogger("reknit.group")


class GroupSourcePublisher:
    """Publishes the events of one member of a group at the node, under that member's seqs from `first` on."""

    def __init__(self, journal: GroupJournal, source: bytes, first: int = 1) -> None:
        self._journal = journal
        self._has_begun = first == 1
        """Whether the node knows the source, or begins with the first event of it."""
        self._connected: Connected | None = None
        """The connection on which the node is asked about that."""
        self._driver = PublishDriver(
            machines.SourcePublisher(source, journal.topic),
            journal.router.connection,
            on_refused=lambda error: self.fail(error),
            on_stored=lambda stop: self._journal.stored(),
        )
        self._timer: asyncio.TimerHandle | None = None
        self._unstored = 0

    @property
    def source(self) -> bytes:
        return self._driver.machine.source

    @property
    def unstored_bytes(self) -> int:
        """The size of the events that the node has not acknowledged."""
        return 0 if self._driver.error is not None else self._driver.machine.unacked_bytes

    def put(self, batch: Batch) -> None:
        """Bring a batch to the node, and hold it until the node acknowledges it."""
        if self._driver.error is None:
            self._driver.machine.forward(batch)
            self._driver.perform()
            self._journal.stored()
        else:
            self._not_stored(batch.count, self._driver.error)

    async def flush(self) -> None:
        """Return when the node has everything so far, or will never have it."""
        with contextlib.suppress(LocalError, Refused):
            await self._driver.flush()

    def is_heard(self) -> bool:
        """Whether somebody was told why nothing more is stored."""
        return self._driver.failed.close()

    def fail(self, error: LocalError | Refused) -> None:
        """The node takes no more of this source, or the session is closed."""
        lost = sum(batch.count for batch in self._driver.machine.unacked)
        if self._driver.error is None:
            self._not_stored(lost, error)
        if self._timer is not None:
            self._timer.cancel()
        self._driver.fail(error)
        self._journal.stored()

    def _not_stored(self, count: int, error: Exception) -> None:
        """Events will never be at the node: log it when their number has doubled."""
        before, self._unstored = self._unstored, self._unstored + count
        if before.bit_length() < self._unstored.bit_length():
            log.error(
                "%d events of %s were not stored on the node: %s", self._unstored, self.source.hex(), error
            )

    def receive(self, message: machines.Input) -> None:
        """The node sent a message about this source, or the connection changed."""
        self._has_begun = self._has_begun or isinstance(message, Ack)
        self._connected = None if isinstance(message, Disconnected) else self._connected
        if isinstance(message, Connected) and not self._has_begun:
            self._connected = message
            self._journal.ask_for(self, message)
        elif isinstance(message, Refuse) and message.code == Code.INVALID_ARGUMENT:
            self._pass_over(message)
        elif isinstance(message, Expect) and self._first_held(message.seq) > message.seq:
            self._wait_for_others(message.seq)
        elif self._driver.error is None:
            self._driver.receive(message)

    def begin(self, connected: Connected) -> None:
        """The node knows the source by now, or nobody has its first events: bring what is here."""
        if self._connected is connected and self._driver.error is None:
            self._connected = None
            self._driver.receive(connected)

    def _pass_over(self, refused: Refuse) -> None:
        """Events are dead letters at the node, such as those with a time in the future. Later ones must not wait."""
        if self._driver.error is None:
            error = Refused(refused.code, refused.text)
            self._not_stored(self._driver.machine.pass_over(refused.stop), error)
            self._driver.perform()
            self._journal.skip(self, refused.start, refused.stop)

    # -- gaps

    def _wait_for_others(self, seq: int) -> None:
        """The node misses events from `seq` on that we never had: another member may bring them."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._journal.skip_s, self._give_up, seq)

    def _first_held(self, seq: int) -> int:
        """The first seq at or after this one that we have; 0 if there is none."""
        unacked = self._driver.machine.unacked
        return next((max(batch.first, seq) for batch in unacked if batch.stop > seq), 0)

    def _give_up(self, seq: int) -> None:
        self._timer = None
        if self._driver.error is None and (first := self._first_held(seq)):
            self._journal.skip(self, seq, first)

    def resend(self) -> None:
        """The gap is skipped or filled: the node takes later events now."""
        if self._driver.error is None:
            self._driver.receive(Expect(self.source, 1))


class GroupJournal:
    """Brings a group's events to the node of a session. `ask` makes an admin request to that node."""

    def __init__(
        self,
        router: MessageRouter,
        topic: str,
        *,
        ask: Callable[..., Awaitable[Any]],
        skip_s: float,
        window_bytes: int,
    ) -> None:
        self.router, self.topic = router, topic
        self.skip_s = skip_s
        """How long a gap may stay open."""
        self._ask = ask
        self._window_bytes = window_bytes
        self._publishers: dict[bytes, GroupSourcePublisher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, batch: Batch) -> None:
        """This member received a batch."""
        publisher = self._publishers.get(batch.source)
        if publisher is None:
            publisher = self._publishers[batch.source] = GroupSourcePublisher(self, batch.source, batch.first)
            self.router.add_publisher(publisher)
        publisher.put(batch)

    def stored(self) -> None:
        """Batches were put in or stored: see whether there is room."""
        if sum(publisher.unstored_bytes for publisher in self._publishers.values()) < self._window_bytes:
            self._room.set()
        else:
            self._room.clear()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def room(self) -> None:
        """Return when the node has stored enough. The reader waits here, and so do the group's senders."""
        await self._room.wait()

    def keep_only(self, sources: set[bytes]) -> None:
        """These are the members now: publishers of others go once the node has all of their events."""
        gone = [
            one
            for source, one in self._publishers.items()
            if source not in sources and not one.unstored_bytes
        ]
        for publisher in gone:
            del self._publishers[publisher.source]
            self.router.remove_publisher(publisher)

    def ask_for(self, publisher: GroupSourcePublisher, connected: Connected) -> None:
        """Let a publisher begin when the node knows its source, or when others had time to bring its first events."""
        self._start(self._begin(publisher, connected))

    async def _begin(self, publisher: GroupSourcePublisher, connected: Connected) -> None:
        try:
            known = await self._ask("checkpoint", pattern=self.topic)
        except NotConnected:
            return  # after a reconnection it is asked again
        except ReknitError as error:
            log.warning("the node could not be asked for the sources of %r: %s", self.topic, error)
            known = {}
        if publisher.source.hex() not in known:
            await asyncio.sleep(self.skip_s)
        publisher.begin(connected)

    def skip(self, publisher: GroupSourcePublisher, start: int, stop: int) -> None:
        """No member brought `[start, stop)`: let the node skip these events."""
        self._start(self._skip(publisher, start, stop))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _skip(self, publisher: GroupSourcePublisher, start: int, stop: int) -> None:
        try:
            await self._ask("skip", topic=self.topic, source=publisher.source.hex(), start=start, stop=stop)
        except Refused as refused:
            publisher.fail(refused)
        except ReknitError as error:
            # after a reconnection the node asks again
            log.warning("the node could not be told to skip a gap: %s", error)
        else:
            publisher.resend()

    async def close(self, wait_s: float) -> None:
        """Return when the node has everything, or can't be reached, or after `wait_s`."""
        publishers = list(self._publishers.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                if self.router.connection.is_up:
                    await asyncio.gather(*(publisher.flush() for publisher in publishers))
        for publisher in publishers:
            self.router.remove_publisher(publisher)
            publisher.fail(LocalError(f"the group {self.topic!r} was left"))
        for task in list(self._tasks):
            task.cancel()
