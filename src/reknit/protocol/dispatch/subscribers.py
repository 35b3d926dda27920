"""Opens and removes the queues of subscribers. A durable subscriber learns of its account when that is stored."""

from __future__ import annotations

from collections.abc import Container, Iterator

from reknit.ledger import QUEUES, Account, Series
from reknit.outcome import Code
from reknit.private_topics import private_prefix
from reknit.protocol.dispatch.crashes import Crashes
from reknit.protocol.dispatch.delivery_pump import DeliveryPump
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.protocol.dispatch.losses import Losses
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.overflow import Overflow
from reknit.protocol.dispatch.resumption import HeldRanges, Resumption
from reknit.protocol.dispatch.settlement import DispatchSettlement
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.machine import Peer
from reknit.protocol.queues.isolation import Isolation
from reknit.protocol.queues.lanes import Lanes
from reknit.protocol.queues.leases import Leases
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import Queue, QueueKey
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.records import SubscriberClosed, SubscriberOpened, SubscriberOwned
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.messages import Held, Subscribed, Unsubscribed


class Subscribers:
    """Opens and removes queues."""

    def __init__(
        self,
        state: DispatchState,
        recorder: OutcomeRecorder,
        pump: DeliveryPump,
        settlement: DispatchSettlement,
        losses: Losses,
        overflow: Overflow,
        crashes: Crashes,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._pump = pump
        self._settlement = settlement
        self._losses = losses
        self._overflow = overflow
        self._crashes = crashes
        self._new: dict[str, int] = {}
        """Durable subscribers whose account is not durable yet, and the number of its record."""
        self._opening: dict[QueueKey, OpenSubscription] = {}
        """Subscriptions that wait for a durable account."""
        self._ended: dict[QueueKey, str] = {}
        """Durable subscriptions that ended on connections that are still up: they may be forgotten later."""
        self._held: dict[Peer, HeldRanges] = {}
        """What subscribers have in flight, before they subscribe."""
        self._resuming: dict[QueueKey, Resumption] = {}
        """Subscriptions that are being opened, in steps."""
        self._joining: dict[QueueKey, OpenSubscription] = {}
        """Members of a queue that is being opened for another one."""
        self._opened: list[Peer] = []

    @property
    def _unopened(self) -> tuple[Container[QueueKey], ...]:
        return self._opening, self._resuming, self._joining

    # -- opening

    def hold(self, key: QueueKey, ranges: list[Held]) -> None:
        """A peer that is about to subscribe has events in flight."""
        self._held.setdefault(key[0], HeldRanges()).add(key[1], self._state.ledger.published, ranges)

    def open(self, message: OpenSubscription, peer: Peer) -> None:
        """A peer subscribes."""
        request, state = message.request, self._state
        key, name = (peer, request.sub), request.account
        if state.queues.get(key) is not None or any(key in those for those in self._unopened):
            text = f"subscription {request.sub} exists already on this connection: use another number"
            self._refuse(key, Code.ALREADY_EXISTS, text)
            return
        if name and name not in state.ledger.accounts and name not in self._new:
            self._new[name] = self._open_account(message)
        if name in self._new:
            self._opening[key] = message
        else:
            self._begin(message, peer, resumed=bool(name))

    def _open_account(self, message: OpenSubscription) -> int:
        state, name, pattern = self._state, message.request.account, message.pattern.text
        floor = state.end if message.position < 0 else message.position
        own = Pattern(f"{private_prefix(name)}**")  # for an earlier subscriber of this name
        since = {series: seqs.last + 1 for series, seqs in state.ledger.matching(own)}
        return state.append(
            SubscriberOpened.at(name, pattern, {**message.since, **since}, floor, state.time_us)
        )

    def made_durable(self, number: int) -> None:
        """Accounts became durable: subscriptions that wait for them begin."""
        if not self._new:
            return
        for key, message in list(self._opening.items()):
            if self._new.get(message.request.account, 0) <= number:
                del self._opening[key]
                self._overflow.opened(message.request.account)
                self._begin(message, key[0], resumed=False)
        self._new = {name: wanted for name, wanted in self._new.items() if wanted > number}

    def _begin(self, message: OpenSubscription, peer: Peer, resumed: bool) -> None:
        state, request = self._state, message.request
        key, name = (peer, request.sub), request.account
        account = state.account(name) if name else None
        if account is not None and account.pattern.text != message.pattern.text:
            text = f"{_called(name)} was opened for {account.pattern.text!r}: use another name, or forget it"
            self._refuse(key, Code.FAILED_PRECONDITION, text)
            return
        if request.queue and self._join(message, key):
            return
        isolation = None
        if name:
            self._take_over(name)
            isolation = self._crashes.opened(key, request)
            account = state.account(name)
        position = message.position if account is None else account.floor
        held = self._held.setdefault(peer, HeldRanges())
        held.add(request.sub, state.ledger.published, request.held)
        queue = self._queue(message, peer, position, isolation)
        resumption = Resumption(state, queue, message, account, held.take(request.sub), resumed)
        if resumption.step():
            self._finish(resumption)
        else:
            if queue.is_live:
                queue.cursor.stop_at(
                    state.end, queue.cursor.priority
                )  # it misses nothing of what comes meanwhile
            self._resuming[key] = resumption

    # -- members of a queue

    def _join(self, message: OpenSubscription, key: QueueKey) -> bool:
        """Join a queue that is open, or wait while it is being opened. False if there is none yet."""
        name, queue = message.request.account, self._state.queues.named(message.request.account)
        if isinstance(queue, SharedQueue):
            self._ended = {one: ended for one, ended in self._ended.items() if ended != name}
            if queue.order != message.request.order:
                self._refuse(key, Code.FAILED_PRECONDITION, _other_order(queue, message.request.order))
                return True
            self._state.queues.join(queue, self._member(message, key[0]))
            self._crashes.joined(key, message.request, queue)
            self._opened_member(message, queue, resumed=True)
            return True
        if any(one.queue.name == name for one in self._resuming.values()):
            self._joining[key] = message
            return True
        return False

    def _member(self, message: OpenSubscription, peer: Peer) -> Member:
        request = message.request
        return Member(peer, request.sub, request.credit, self._state.rules.in_flight_bytes_max)

    def _opened_member(self, message: OpenSubscription, queue: SharedQueue, resumed: bool) -> None:
        """Confirm a member's subscription, and deliver to it what waits."""
        state, member = self._state, queue.member
        state.queues.schedule(queue)
        state.send(member.peer, Subscribed(member.sub, queue.unsettled.floor, resumed, is_shared=True))
        account = state.account(queue.name)
        if account is not None:
            self._own(message, account)
            self._losses.report_unknown(queue, account)
        self._settlement.deliver_rest(queue)

    def _leave_queue(self, queue: SharedQueue, key: QueueKey) -> None:
        """A member leaves. The others get what it did not settle."""
        self._settlement.release_held(queue, key)
        self._crashes.closed(key)
        self._crashes.given_back(queue)
        self._state.queues.leave(queue, key)
        if queue.members:
            self._settlement.deliver_rest(queue)

    def tick(self) -> None:
        """Go on with subscriptions that are being opened, one step of each."""
        joining, self._joining = self._joining, {}
        for key, resumption in list(self._resuming.items()):
            if resumption.step():
                del self._resuming[key]
                if resumption.renew():
                    self._finish(resumption)
                    self._opened.append(key[0])
                else:
                    self._refuse(key, Code.ABORTED, f"{_called(resumption.queue.name)} was forgotten")
        for key, message in joining.items():
            self.open(message, key[0])

    def take_opened(self) -> list[Peer]:
        """The peers whose subscriptions were opened a while after they subscribed, once each."""
        peers, self._opened = self._opened, []
        return peers

    @property
    def is_due(self) -> bool:
        """Whether `tick` has something to do."""
        return bool(self._resuming or self._joining)

    def _finish(self, resumption: Resumption) -> None:
        state, queue, message = self._state, resumption.queue, resumption.message
        account = resumption.account
        if account is not None:
            self._recorder.resume(queue.name, queue.unsettled.floor)
        if account is None and message.seen:
            self._skip_seen(queue, message.seen)
        if queue.cursor.position >= state.end:
            queue.cursor.go_live()
        state.queues.add(queue, has_account=account is not None)
        if isinstance(queue, SharedQueue):
            self._opened_member(message, queue, resumption.resumed)
        else:
            self._opened_one(resumption)
        if account is not None and not resumption.resumed:
            self._losses.lose_removed(queue.name)
        self._pump.pump(queue)

    def _opened_one(self, resumption: Resumption) -> None:
        """Confirm a subscription that gets every event."""
        state, queue, message = self._state, resumption.queue, resumption.message
        account, peer = resumption.account, queue.peer
        has_leases = queue.leases is not None and queue.leases.next_due() is not None
        if has_leases or queue.isolation is not None:
            state.queues.schedule(queue)
        rules = ([], []) if queue.is_durable else (state.rules.handling(queue.pattern), state.rules.never)
        floor = queue.unsettled.floor
        state.send(peer, Subscribed(message.request.sub, floor, resumption.resumed, False, *rules))
        if not queue.is_durable and 0 <= message.position < self._losses.start:
            self._losses.report_removed_since(queue, message.position)
        if account is not None:
            self._own(message, account)
            self._losses.report_unknown(queue, account)

    def _own(self, message: OpenSubscription, account: Account) -> None:
        """A durable subscriber belongs to the identity that opened it first."""
        if message.owner and not account.owner:
            self._state.append(SubscriberOwned(account.name, message.owner, self._state.time_us))

    def _queue(
        self, message: OpenSubscription, peer: Peer, position: int, isolation: Isolation | None
    ) -> Queue:
        state, request = self._state, message.request
        # Nobody else waits for what an unnamed subscriber holds, so it has no lease. A cache holds what the other
        # node has not stored yet, and that node may be away for long.
        has_leases = bool(state.rules.lease_s and request.account and not request.is_cache)
        leases = Leases(state.rules.lease_s) if has_leases else None
        lanes = Lanes(state.pauses.is_paused, lambda: state.queues.schedule(queue))
        floor = state.end if position < 0 else position
        account = state.ledger.accounts.get(request.account)
        pattern = message.pattern if account is None else account.pattern
        queue: Queue
        if request.queue:
            queue = SharedQueue(
                request.account,
                pattern,
                position,
                floor,
                self._member(message, peer),
                lambda: state.now,
                lanes,
                leases,
                isolation,
                request.order,
            )
            return queue
        queue = Queue(
            peer,
            request.sub,
            request.name,
            pattern,
            position,
            request.credit,
            floor=floor,
            after={} if request.name else message.after,  # the ledger knows what a durable subscriber is owed
            lanes=lanes,
            leases=leases,
            in_flight_bytes_max=state.rules.in_flight_bytes_max,
            is_cache=request.is_cache,
            isolation=isolation,
        )
        return queue

    def _skip_seen(self, queue: Queue, seen: dict[bytes, int]) -> None:
        """Events that overtook others reached the subscriber, although they are behind its position."""

        def ended(series: Series) -> SeqSet:
            return SeqSet.from_ranges([(0, seen.get(series[1], -1) + 1)])

        queue.resume(self._state.end, ended)

    def _take_over(self, name: str) -> None:
        """A second connection for the same name: the newer one takes over, and the older one is told."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended != name}
        other = self._state.queues.named(name)
        if other is not None:
            self._state.queues.remove(other)
            self._crashes.taken_over(other)
        for key, resumption in list(self._resuming.items()):
            if resumption.queue.name == name:
                other = self._resuming.pop(key).queue
        if other is not None:
            text = (
                f"subscriber {name!r} was opened by another connection, which continues from here: "
                "to share the events among programs, let each of them subscribe with queue=… instead of name=…"
            )
            self._state.send(other.peer, Unsubscribed(other.sub, Code.ABORTED, text))

    def _refuse(self, key: QueueKey, code: Code, text: str) -> None:
        self._state.send(key[0], Unsubscribed(key[1], code, text))

    # -- leaving

    def unsubscribe(self, key: QueueKey, forget: bool) -> None:
        """A peer unsubscribes, or wants a subscription that ended before to be forgotten."""
        ended = self._end(key)
        name = self._ended.pop(key, "") if ended is None and forget else ended
        if name and forget and (others := self._members_of(name)):
            count = f"{others} other member{'s' if others > 1 else ''}"
            text = f"{_called(name)} has {count}: the last one can forget it"
            self._refuse(key, Code.FAILED_PRECONDITION, text)
        elif name and forget:
            self._forget(key, name)
        elif ended is not None:
            self._state.send(key[0], Unsubscribed(key[1]))
            if name:
                self._ended[key] = name

    def end(self, key: QueueKey, code: Code, text: str) -> None:
        """The node ends a subscription. A durable subscriber keeps its account."""
        if self._end(key) is not None:
            self._refuse(key, code, text)

    def all(self) -> Iterator[tuple[QueueKey, str, str]]:
        """Every subscription, also one that is being opened: its key, its pattern and its durable name."""
        for those in (self._opening, self._joining):
            yield from ((key, one.pattern.text, one.request.account) for key, one in those.items())
        queues = [
            *self._state.queues.subscriptions(),
            *((key, one.queue) for key, one in self._resuming.items()),
        ]
        yield from ((key, queue.pattern.text, queue.name) for key, queue in queues)

    def _end(self, key: QueueKey) -> str | None:
        """End a subscription; returns its name, or None if there is no such subscription."""
        opening = self._opening.pop(key, None) or self._joining.pop(key, None)
        if (resuming := self._resuming.pop(key, None)) is not None:
            return resuming.queue.name
        queue = self._state.queues.get(key)
        if isinstance(queue, SharedQueue):
            self._leave_queue(queue, key)
        elif queue is not None:
            self._state.queues.remove(queue)
            self._crashes.closed(key)
        if queue is not None:
            return queue.name
        return None if opening is None else opening.request.account

    def _forget(self, key: QueueKey, name: str) -> None:
        """Close an account. That is confirmed when it is durable."""
        state = self._state
        number = state.append(SubscriberClosed(name, state.time_us))
        self._new.pop(name, None)
        self._recorder.forget(name)
        self._crashes.forget(name)
        if (withhold := self._overflow.closed(name)) is not None:
            state.emit(withhold)
        state.send_when_durable(number, key[0], Unsubscribed(key[1], is_forgotten=True))

    def _members_of(self, name: str) -> int:
        """How many subscriptions are members of a queue, or about to be."""
        queue = self._state.queues.named(name)
        coming = [
            *self._opening.values(),
            *self._joining.values(),
            *(one.message for one in self._resuming.values()),
        ]
        found = sum(one.request.queue != "" and one.request.account == name for one in coming)
        return found + (len(queue.members) if isinstance(queue, SharedQueue) else 0)

    def leave(self, peer: Peer, is_abrupt: bool) -> None:
        """A connection is gone."""
        keys = self._state.queues.of_peer(peer)
        for key in keys:  # what one of its members held does not go to another one
            self._state.queues[key].credit.block(True)
        for key in keys:
            if is_abrupt:
                self._crashes.lost(key, self._state.queues[key])
            self._end(key)
        self._crashes.peer_left(peer, is_abrupt)
        self._held.pop(peer, None)
        self._opening = {key: message for key, message in self._opening.items() if key[0] != peer}
        self._joining = {key: message for key, message in self._joining.items() if key[0] != peer}
        self._resuming = {key: one for key, one in self._resuming.items() if key[0] != peer}
        self._ended = {key: name for key, name in self._ended.items() if key[0] != peer}


def _called(name: str) -> str:
    """A durable subscriber or a queue, as its users call it."""
    return f"queue {name.removeprefix(QUEUES)!r}" if name.startswith(QUEUES) else f"subscriber {name!r}"


def _other_order(queue: Queue, asked: str) -> str:
    has = f"order={queue.order!r}" if queue.order else "no order of its own"
    return f"{_called(queue.name)} has {has}, and this member asks for order={asked!r}: let all members say the same"
