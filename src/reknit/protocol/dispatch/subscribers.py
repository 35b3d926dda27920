"""Opens and removes the queues of subscribers. A durable subscriber learns of its account when that is stored."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.ledger import Series
from reknit.outcome import Code
from reknit.protocol.dispatch.crashes import Crashes
from reknit.protocol.dispatch.delivery_pump import DeliveryPump
from reknit.protocol.dispatch.inputs import OpenSubscription, QueueKey
from reknit.protocol.dispatch.isolation import Isolation
from reknit.protocol.dispatch.lanes import Lanes
from reknit.protocol.dispatch.leases import Leases
from reknit.protocol.dispatch.losses import Losses
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.overflow import Overflow
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.resumption import HeldRanges, Resumption
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.machine import Peer
from reknit.records import SubscriberClosed, SubscriberOpened, SubscriberOwned
from reknit.seqset import SeqSet
from reknit.wire.messages import Held, Subscribed, Unsubscribed


class Subscribers:
    """Opens and removes queues."""

    def __init__(
        self,
        state: DispatchState,
        recorder: OutcomeRecorder,
        pump: DeliveryPump,
        losses: Losses,
        overflow: Overflow,
        crashes: Crashes,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._pump = pump
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
        self._opened: list[Peer] = []

    # -- opening

    def hold(self, key: QueueKey, ranges: list[Held]) -> None:
        """A peer that is about to subscribe has events in flight."""
        self._held.setdefault(key[0], HeldRanges()).add(key[1], self._state.ledger.published, ranges)

    def open(self, message: OpenSubscription, peer: Peer) -> None:
        """A peer subscribes."""
        request, state = message.request, self._state
        key, name = (peer, request.sub), request.name
        if state.queues.get(key) is not None or key in self._opening or key in self._resuming:
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
        state, name, pattern = self._state, message.request.name, message.pattern.text
        floor = state.end if message.position < 0 else message.position
        return state.append(SubscriberOpened.at(name, pattern, message.since, floor, state.time_us))

    def made_durable(self, number: int) -> None:
        """Accounts became durable: subscriptions that wait for them begin."""
        if not self._new:
            return
        for key, message in list(self._opening.items()):
            if self._new.get(message.request.name, 0) <= number:
                del self._opening[key]
                self._overflow.opened(message.request.name)
                self._begin(message, key[0], resumed=False)
        self._new = {name: wanted for name, wanted in self._new.items() if wanted > number}

    def _begin(self, message: OpenSubscription, peer: Peer, resumed: bool) -> None:
        state, request = self._state, message.request
        account = state.account(request.name) if request.name else None
        if account is not None and account.pattern != message.pattern:
            text = f"subscriber {request.name!r} was opened for {account.pattern.text!r}: use another name, or forget it"
            self._refuse((peer, request.sub), Code.FAILED_PRECONDITION, text)
            return
        isolation = None
        if request.name:
            self._take_over(request.name)
            isolation = self._crashes.opened((peer, request.sub), request)
            account = state.account(request.name)
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
            self._resuming[queue.key] = resumption

    def tick(self) -> None:
        """Go on with subscriptions that are being opened, one step of each."""
        for key, resumption in list(self._resuming.items()):
            if resumption.step():
                del self._resuming[key]
                if resumption.renew():
                    self._finish(resumption)
                    self._opened.append(key[0])
                else:
                    self._refuse(key, Code.ABORTED, f"subscriber {resumption.queue.name!r} was forgotten")

    def take_opened(self) -> list[Peer]:
        """The peers whose subscriptions were opened a while after they subscribed, once each."""
        peers, self._opened = self._opened, []
        return peers

    @property
    def is_due(self) -> bool:
        """Whether `tick` has something to do."""
        return bool(self._resuming)

    def _finish(self, resumption: Resumption) -> None:
        state, queue, message = self._state, resumption.queue, resumption.message
        request, peer, account = message.request, queue.peer, resumption.account
        if account is not None:
            self._recorder.resume(queue.name, queue.unsettled.floor)
        if account is None and message.seen:
            self._skip_seen(queue, message.seen)
        if queue.cursor.position >= state.end:
            queue.cursor.go_live()
        state.queues.add(queue, has_account=account is not None)
        has_leases = queue.leases is not None and queue.leases.next_due() is not None
        if has_leases or queue.isolation is not None:
            state.queues.schedule(queue)
        rules = ([], []) if queue.is_durable else (state.rules.handling(queue.pattern), state.rules.never)
        state.send(peer, Subscribed(request.sub, queue.unsettled.floor, resumption.resumed, False, *rules))
        if not queue.is_durable and 0 <= message.position < self._losses.start:
            self._losses.report_removed_since(queue, message.position)
        if account is not None:
            if message.owner and not account.owner:
                state.append(SubscriberOwned(queue.name, message.owner, state.time_us))
            self._losses.report_unknown(queue, account)
            if not resumption.resumed:
                self._losses.lose_removed(queue.name)
        self._pump.pump(queue)

    def _queue(
        self, message: OpenSubscription, peer: Peer, position: int, isolation: Isolation | None
    ) -> Queue:
        state, request = self._state, message.request
        # Nobody else waits for what an unnamed subscriber holds, so it has no lease. A cache holds what the other
        # node has not stored yet, and that node may be away for long.
        has_leases = bool(state.rules.lease_s and request.name and not request.is_cache)
        queue = Queue(
            peer,
            request.sub,
            request.name,
            message.pattern,
            position,
            request.credit,
            floor=state.end if position < 0 else position,
            after={} if request.name else message.after,  # the ledger knows what a durable subscriber is owed
            lanes=Lanes(state.pauses.is_paused, lambda: state.queues.schedule(queue)),
            leases=Leases(state.rules.lease_s) if has_leases else None,
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
            text = f"subscriber {name!r} was opened by another connection, which continues from here"
            self._state.send(other.peer, Unsubscribed(other.sub, Code.ABORTED, text))

    def _refuse(self, key: QueueKey, code: Code, text: str) -> None:
        self._state.send(key[0], Unsubscribed(key[1], code, text))

    # -- leaving

    def unsubscribe(self, key: QueueKey, forget: bool) -> None:
        """A peer unsubscribes, or wants a subscription that ended before to be forgotten."""
        ended = self._end(key)
        name = self._ended.pop(key, "") if ended is None and forget else ended
        if name and forget:
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
        yield from ((key, one.pattern.text, one.request.name) for key, one in self._opening.items())
        queues = [*self._state.queues.by_key.values(), *(one.queue for one in self._resuming.values())]
        yield from ((queue.key, queue.pattern.text, queue.name) for queue in queues)

    def _end(self, key: QueueKey) -> str | None:
        """End a subscription; returns its name, or None if there is no such subscription."""
        opening, queue = self._opening.pop(key, None), self._state.queues.get(key)
        if (resuming := self._resuming.pop(key, None)) is not None:
            return resuming.queue.name
        if queue is not None:
            self._remove(queue)
            return queue.name
        return None if opening is None else opening.request.name

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

    def _remove(self, queue: Queue) -> None:
        self._state.queues.remove(queue)
        self._crashes.closed(queue.key)

    def leave(self, peer: Peer, is_abrupt: bool) -> None:
        """A connection is gone."""
        for queue in self._state.queues.of_peer(peer):
            if is_abrupt:
                self._crashes.lost(queue)
            self._remove(queue)
        self._crashes.peer_left(peer, is_abrupt)
        self._held.pop(peer, None)
        self._opening = {key: message for key, message in self._opening.items() if key[0] != peer}
        self._resuming = {key: one for key, one in self._resuming.items() if key[0] != peer}
        self._ended = {key: name for key, name in self._ended.items() if key[0] != peer}
