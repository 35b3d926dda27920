"""Groups: programs that send events to each other, each to all, reliably and in order.

    async with session.group("robots") as group:
        await group.send(b"hello")
        async for event in group:
            print(group.name_of(event.source), event.payload)

Without a session, and a node, the same is `Group.join("robots")`. A group's events are on the topic `group/robots`;
with a session they are in the node's journal too. The machines behind it are in `reknit.protocol`, and a `GroupDriver`
runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from time import monotonic
from types import TracebackType

from reknit.batch import Batch
from reknit.client.group.driver import NEVER, GroupDriver, GroupTransport
from reknit.client.group.journal import GroupJournal
from reknit.client.group.ledger import GroupLedger
from reknit.config import MulticastSettings
from reknit.errors import Closed, Full, ReknitError
from reknit.event import Event
from reknit.frame import Buffer
from reknit.protocol.multicast.effects import (
    DeadLetteredEvents,
    DeliverBatch,
    GroupEffect,
    LeftGroup,
    LostEvents,
    SendDone,
    SendFailed,
    ViewInstalled,
)
from reknit.protocol.multicast.settings import GroupSettings
from reknit.topic import check_topic
from reknit.transport.udp import UdpConfig, UdpTransport
from reknit.transport.udp_over_tcp import TcpConfig, TcpDatagrams
from reknit.view import Member, View

log = logging.getLogger("reknit.group")

SETTLE_S = 5.0
"""How long closing waits for the members to ack what was sent."""
LOST_MAX = 1024


def topic_of(name: str) -> str:
    """The topic of a group's events.

    >>> topic_of("robots")
    'group/robots'
    """
    return f"group/{name}"


def transport_of(config: MulticastSettings) -> GroupTransport:
    """UDP or TCP, as configured."""
    if config.tcp:
        buffer = config.write_buffer_bytes
        return TcpDatagrams(
            TcpConfig(interface=config.interface, port=config.port, write_buffer_bytes=buffer)
        )
    udp = UdpConfig(
        group=config.address,
        interface=config.interface,
        port=config.port,
        ttl=config.hops_max,
        receive_buffer_bytes=config.receive_buffer_bytes,
    )
    return UdpTransport(udp)


class Group:
    """A member of a group. Make one with `join`.

    A member gets its own events too, in order, unless it says `discard_own`. What it does not read holds up
    the senders, because an ack means that the application has the event.
    """

    def __init__(
        self,
        name: str,
        transport: GroupTransport,
        *,
        member: str = "",
        seeds: Sequence[str] = (),
        settings: GroupSettings | None = None,
        discard_own: bool = False,
        is_given: bool = False,
        journal: GroupJournal | None = None,
    ) -> None:
        self.name = check_topic(name)
        self.topic = topic_of(name)
        self.lost: deque[LostEvents] = deque(maxlen=LOST_MAX)
        """The latest ranges that could not be had any more."""
        self.ledger = GroupLedger()
        """What became of every event: delivered or lost, by source; dead-lettered, by member."""
        self.why_left: str | None = None
        """Why we are out of the group, empty when we wished it; None while we are in."""
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_lost: Callable[[LostEvents], None] = lambda lost: None
        self.on_dead_letter: Callable[[DeadLetteredEvents], None] = lambda letter: None
        self._driver = GroupDriver(self.name, self.topic, transport, self._perform)
        self._is_given = is_given
        self._journal = journal
        self._discard_own = discard_own
        self._seeds = seeds
        self._member = member
        self._settings = settings if settings is not None else GroupSettings()
        self._items: deque[Batch | LostEvents] = deque()
        self._events: Iterator[Event] = iter(())
        self._last: Event | None = None
        """The last event of the batch that is being read: with it, the application has all of them."""
        self._reader: asyncio.Future[None] | None = None

    @classmethod
    def join(
        cls,
        name: str,
        *,
        udp: UdpConfig | None = None,
        tcp: TcpConfig | None = None,
        member: str = "",
        seeds: Sequence[str] = (),
        settings: GroupSettings | None = None,
        discard_own: bool = False,
        is_given: bool = False,
    ) -> Group:
        """A group over UDP multicast, or over TCP where `tcp` is given; enter it with `async with`.

        Without multicast, `seeds` are the addresses of some members ("HOST:PORT") to find the others by. With
        `is_given` the members do not look for each other: `give` says who they are.
        """
        transport: GroupTransport = TcpDatagrams(tcp) if tcp is not None else UdpTransport(udp or UdpConfig())
        return cls(
            name,
            transport,
            member=member,
            seeds=seeds,
            settings=settings,
            discard_own=discard_own,
            is_given=is_given,
        )

    # -- joining and leaving

    async def __aenter__(self) -> Group:
        loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = loop.create_future()
        self._left: asyncio.Future[None] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()
        self._done.set_result(None)
        try:
            await self._driver.start(self._member, self._seeds, self._settings, is_given=self._is_given)
            self._box = self._driver.sender.outbox
            self._offer = self._box.offer
            await self._joined
        except BaseException:
            await self._driver.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(settle_s=0.0 if error is not None else SETTLE_S)

    async def close(self, settle_s: float = SETTLE_S) -> None:
        """Wait until the members have what was sent, say goodbye, and leave."""
        if self.why_left is None:
            if settle_s and not self._box.is_closed:
                await self._settle(settle_s)
            self._driver.machine.leave(monotonic())
            self._driver.turn()
            await self._left
        await self._driver.stop()
        if self._journal is not None:
            await self._journal.close(settle_s)

    async def settled(self) -> None:
        """Wait until every member's application has everything that we sent so far."""
        self._driver.turn()
        while self.why_left is None and not self._driver.sender.is_settled:  # noqa: ASYNC110
            await asyncio.sleep(self._settings.ack_s / 4)

    async def _settle(self, settle_s: float) -> None:
        """Nobody will read what is left here: let it hold up no one."""
        self._discard_own = True
        if self._last is not None:
            self._handed(self._last.batch)
            self._last, self._events = None, iter(())
        while self._items:
            self._handed(self._items.popleft())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settle_s):
                await self.settled()

    # -- who is here

    @property
    def members(self) -> tuple[Member, ...]:
        """The members by rank, we among them."""
        view = self._driver.machine.view
        return () if view is None else view.members

    @property
    def me(self) -> Member:
        """We, as the others have to be told where members are given."""
        return self._driver.machine.me

    def give(self, members: Sequence[Member]) -> None:
        """The members from now on, we among them: for a group that was joined with `is_given`."""
        self._driver.give(members)

    @property
    def id(self) -> bytes:
        """Our id, which is the source of the events that we send."""
        return self._driver.id

    def name_of(self, source: bytes) -> str:
        """A member's name, or its id where it has none or is gone."""
        return next((m.name for m in self.members if m.id == source and m.name), source.hex())

    @property
    def address(self) -> str:
        """Where we can be reached; a seed for others."""
        return self._driver.transport.address

    @property
    def warnings(self) -> list[str]:
        """What the transport found at its start that makes it slower than it could be."""
        return self._driver.transport.warnings

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far: asked, answered, duplicates, lost, dropped."""
        return dict(self._driver.multicast.counts)

    # -- sending

    def send(self, payload: Buffer, timeout_s: float | None = None) -> Awaitable[None]:
        """Send an event to all members; awaiting it waits while the window is full, for at most `timeout_s`."""
        if not self._offer(payload):
            return self.send_many([payload], timeout_s)
        if not self._driver.is_turn_due:
            self._driver.turn_soon()
        return self._done

    def send_nowait(self, payload: Buffer) -> bool:
        """Send an event if there is room for it; False if not."""
        accepted = self._driver.multicast.send([payload], monotonic())
        self._driver.send_closed()
        return accepted == 1

    async def send_many(self, payloads: Sequence[Buffer], timeout_s: float | None = None) -> None:
        """Send events to all members, in this order; wait as `send` does."""
        now = monotonic()
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = NEVER if timeout_s is None else now + timeout_s
        accepted = self._driver.multicast.send(payloads, now, ticket, deadline)
        self._driver.send_closed()
        if accepted < len(payloads):
            try:
                await ticket
            except asyncio.CancelledError:
                self._box.cancel(ticket)
                raise

    # -- receiving

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they come. Whoever stops reading and starts again goes on with the next one."""
        while True:
            for event in self._events:
                yield event
            if self._last is None:
                batch = await self._next()
                if batch is None:
                    return
                events = batch.events()
                self._last = events.pop()
                self._events = iter(events)
            else:
                last, self._last = self._last, None
                self._handed(last.batch)
                yield last

    async def batches(self) -> AsyncIterator[Batch]:
        """What comes, a batch at a time."""
        while (batch := await self._next()) is not None:
            self._handed(batch)
            yield batch

    async def take(self) -> list[Batch]:
        """Everything that is here, at least one batch; nothing when the group is left and nothing remains."""
        batch = await self._next()
        taken = [] if batch is None else [batch]
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Batch):
                taken.append(item)
            else:
                self._handed(item)
        for batch in taken:
            self._handed(batch)
        return taken

    async def _next(self) -> Batch | None:
        """The next batch; None when the group is left and nothing remains."""
        while True:
            if self._journal is not None and not self._journal.has_room:
                await self._journal.room()
            while self._items:
                item = self._items.popleft()
                if isinstance(item, Batch):
                    return item
                self._handed(item)
            if self.why_left is not None:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def _handed(self, item: Batch | LostEvents) -> None:
        self._driver.handed(item.source, item.stop - 1)

    # -- effects

    def _perform(self, effect: GroupEffect) -> None:
        match effect:
            case DeliverBatch():
                batch = effect.batch
                self.ledger.deliver(effect.source, batch.first, batch.stop)
                if self._journal is not None:
                    self._journal.put(batch)
                self._deliver(batch)
            case LostEvents():
                self._lose(effect)
            case SendDone():
                if not effect.ticket.done():
                    effect.ticket.set_result(None)
            case SendFailed():
                self._not_sent(effect)
            case DeadLetteredEvents():
                self._dead_letter(effect)
            case ViewInstalled():
                _wake(self._joined)
                if self._journal is not None:
                    self._journal.forget(set(effect.view.ids))
                self.on_view(effect.view)
            case LeftGroup():
                self._leave(effect.why)
            case _:
                pass  # said to the network, or decided by the membership

    def _deliver(self, item: Batch | LostEvents) -> None:
        if self._discard_own and item.source == self._driver.id:
            self._driver.multicast.handed(item.source, item.stop - 1, monotonic())
            self._driver.turn_soon()  # not now: what is being performed comes first
            return
        self._items.append(item)
        _wake(self._reader)

    def _lose(self, lost: LostEvents) -> None:
        """Nobody has these events any more: say so, once, in every place where one may look."""
        log.warning("%s: events [%d, %d) of %s are lost", self.name, lost.start, lost.stop, lost.source.hex())
        self.ledger.lose(lost.source, lost.start, lost.stop)
        self.lost.append(lost)
        self._deliver(lost)
        self.on_lost(lost)

    def _dead_letter(self, letter: DeadLetteredEvents) -> None:
        text = "%s: our events [%d, %d) are dead letters for %s, which took nothing for too long"
        log.warning(text, self.name, letter.start, letter.stop, letter.member.hex())
        self.ledger.dead_letter(letter.member, letter.start, letter.stop)
        self.on_dead_letter(letter)

    def _not_sent(self, effect: SendFailed) -> None:
        if effect.ticket.done():
            return
        error: ReknitError = Closed(f"group {self.name!r}", "join it again")
        if effect.is_timeout:
            what = f"the group's window had no room in time ({effect.accepted} events were sent)"
            error = Full(what, "group.capacity_events, group.window_bytes or the timeout")
        effect.ticket.set_exception(error)

    def _leave(self, why: str) -> None:
        self.why_left = why
        self._driver.multicast.close(monotonic())
        for future in (self._reader, self._left, self._joined):
            _wake(future)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
