"""Groups: programs that send events to each other, each to all, reliably and in order.

    async with session.group("robots") as group:
        await group.send(b"hello")
        async for event in group:
            print(group.name_of(event.source), event.payload)

Without a session, and without a node, use `Group.join("robots")`. A group's events are on the topic `group/robots`;
with a session they are in the node's journal too. The machines are in `reknit.protocol.multicast`, and a `GroupDriver`
runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType

import msgspec

from reknit.batch import Batch
from reknit.client.group.datagrams import GroupTransport
from reknit.client.group.driver import GroupDriver
from reknit.client.group.inbox import GroupInbox
from reknit.client.group.journal import GroupJournal
from reknit.client.group.keys import GroupKeys
from reknit.client.group.ledger import GroupLedger
from reknit.config import MulticastSettings
from reknit.connection.deadline_timer import NEVER
from reknit.connection.futures import resolve
from reknit.environment import monotonic
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
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.topic import check_topic
from reknit.transport.udp import UdpConfig, UdpTransport
from reknit.transport.udp_over_tcp import TcpConfig, TcpDatagrams
from reknit.view import Member, View

log = logging.getLogger("reknit.group")

SETTLE_S = 5.0
"""How long closing waits for the members to ack every event."""
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


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member joins its group."""

    name: str
    seeds: Sequence[str]
    settings: GroupSettings
    is_given: bool


class Group:
    """A member of a group. Make one with `join`.

    A member gets its own events too, in order, unless `discard_own` is set. Events that it does not read hold up the
    senders, because an ack means that the application has the event.

    Half of its attributes are for applications to read and set; the driver and the inbox have the state of the protocol.
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
        keys: GroupKeys | None = None,
    ) -> None:
        self.name = check_topic(name)
        self.topic = topic_of(name)
        self.lost: deque[LostEvents] = deque(maxlen=LOST_MAX)
        """The latest ranges that could not be recovered."""
        self.ledger = GroupLedger()
        """Every event's outcome: delivered or lost, by source; dead-lettered, by member."""
        self.why_left: str | None = None
        """Why this member is out of the group, empty if it left on its own; None while it is in."""
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_lost: Callable[[LostEvents], None] = lambda lost: None
        self.on_dead_letter: Callable[[DeadLetteredEvents], None] = lambda dead: None
        self._driver = GroupDriver(self.name, self.topic, transport, self._perform, keys)
        self._options = MemberOptions(
            name=member, seeds=seeds, settings=settings or GroupSettings(), is_given=is_given
        )
        self._journal = journal
        self._inbox = GroupInbox(self._driver.acknowledge, self.ledger.leave_unread, journal)
        self._discard_own = discard_own

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
        key_file: str = "",
    ) -> Group:
        """A group over UDP multicast, or over TCP where `tcp` is given; enter it with `async with`.

        `key_file` has the keys that its members share; without it, the environment variable REKNIT_GROUP_KEY may.
        Without multicast, `seeds` are the addresses ("HOST:PORT") of some members, which know the others. With
        `is_given`, members do not look for each other: `give` sets them.
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
            keys=GroupKeys.configured(key_file),
        )

    # -- joining and leaving

    async def __aenter__(self) -> Group:
        loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = loop.create_future()
        self._left: asyncio.Future[None] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()
        self._done.set_result(None)
        try:
            options = self._options
            await self._driver.start(options.name, options.seeds, options.settings, is_given=options.is_given)
            self._offer = self._driver.sender.outbox.offer
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
        """Wait until the members have every event that was sent, then leave.

        This ends readers of the group at once. Events that arrived and were not read are in the ledger, as unread.
        """
        if self.why_left is None:
            if settle_s and not self._driver.sender.outbox.is_closed:
                await self._settle(settle_s)
            self._driver.machine.leave(monotonic())
            self._driver.turn()
            await self._left
        await self._driver.stop()
        if self._journal is not None:
            await self._journal.close(settle_s)

    async def settled(self) -> None:
        """Wait until every member's application has everything that this member sent so far."""
        self._driver.turn()
        while self.why_left is None and not self._driver.sender.is_settled:  # noqa: ASYNC110
            await asyncio.sleep(self._options.settings.ack_s / 4)

    async def _settle(self, settle_s: float) -> None:
        """End the reader, so that unread events do not hold up the senders, and wait for the members."""
        self._inbox.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settle_s):
                await self.settled()

    # -- members

    @property
    def members(self) -> tuple[Member, ...]:
        """The members by rank, this one among them."""
        view = self._driver.machine.view
        return () if view is None else view.members

    @property
    def me(self) -> Member:
        """This member, for the `give` of the other members."""
        return self._driver.machine.me

    def give(self, members: Sequence[Member]) -> None:
        """Set the members, this one among them: for a group that was joined with `is_given`."""
        self._driver.give(members)

    @property
    def id(self) -> bytes:
        """This member's id, which is the source of its events."""
        return self._driver.id

    def name_of(self, source: bytes) -> str:
        """A member's name, or its id if it has no name or is gone."""
        return next((m.name for m in self.members if m.id == source and m.name), source.hex())

    @property
    def address(self) -> str:
        """This member's address; a seed for others."""
        return self._driver.transport.address

    @property
    def warnings(self) -> list[str]:
        """Settings of this machine that make the transport slower than it could be."""
        return self._driver.transport.warnings

    @property
    def counts(self) -> dict[str, int]:
        """Counters: asked, answered, duplicates, lost, dropped, and refused datagrams as `refused_` and the reason."""
        return self._driver.counts

    def use_keys(self, keys: SharedKeys) -> None:
        """Use and accept other keys from now on, without leaving: for a group that was joined with keys."""
        self._driver.use_keys(keys)

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
                self._driver.sender.outbox.cancel(ticket)
                raise

    # -- receiving

    def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they come. A reader that stops and starts again gets the next one."""
        return self._inbox.events()

    def batches(self) -> AsyncIterator[Batch]:
        """The same, a batch at a time."""
        return self._inbox.batches()

    async def take(self) -> list[Batch]:
        """All batches that have arrived, at least one; an empty list after the group is left and everything is read."""
        return await self._inbox.take()

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
                resolve(self._joined)
                if self._journal is not None:
                    self._journal.keep_only(set(effect.view.ids))
                self.on_view(effect.view)
            case LeftGroup():
                self._leave(effect.why)
            case _:
                pass  # for the network or the membership

    def _deliver(self, item: Batch | LostEvents) -> None:
        is_unwanted = self._discard_own and item.source == self._driver.id
        if not is_unwanted and not self._inbox.is_ended:
            self._inbox.add(item)
            return
        if not is_unwanted and isinstance(item, Batch):
            self.ledger.leave_unread(item.source, item.first, item.stop)
        self._driver.acknowledge_soon(item.source, item.stop - 1)

    def _lose(self, lost: LostEvents) -> None:
        """Nobody has these events any more: report that in the log, the ledger and to the application."""
        log.warning("%s: events [%d, %d) of %s are lost", self.name, lost.start, lost.stop, lost.source.hex())
        self.ledger.lose(lost.source, lost.start, lost.stop)
        self.lost.append(lost)
        self._deliver(lost)
        self.on_lost(lost)

    def _dead_letter(self, effect: DeadLetteredEvents) -> None:
        text = "%s: our events [%d, %d) are dead letters for %s, which took nothing for too long"
        log.warning(text, self.name, effect.start, effect.stop, effect.member.hex())
        self.ledger.dead_letter(effect.member, effect.start, effect.stop)
        self.on_dead_letter(effect)

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
        self._inbox.close()
        resolve(self._left)
        resolve(self._joined)
