"""Subscribers come and go. A durable one has an account, which is durable before it is told that it has one."""

from __future__ import annotations

from reknit.outcome import Code
from reknit.protocol.dispatch.delivery_pump import Handing
from reknit.protocol.dispatch.inputs import Key, Open
from reknit.protocol.dispatch.lanes import Lanes
from reknit.protocol.dispatch.leases import Leases
from reknit.protocol.dispatch.losses import Losses
from reknit.protocol.dispatch.overflow import Overflow
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.state import Desk
from reknit.protocol.machine import Peer
from reknit.records import SubscriberClosed, SubscriberOpened
from reknit.seqset import SeqSet
from reknit.wire.messages import Subscribed, Unsubscribed


class Subscriptions:
    """Opens and drops queues."""

    def __init__(self, desk: Desk, handing: Handing, losses: Losses, overflow: Overflow) -> None:
        self._desk = desk
        self._handing = handing
        self._losses = losses
        self._overflow = overflow
        self._new: dict[str, int] = {}
        """Durable subscribers whose account is not durable yet, and the number of its record."""
        self._opening: dict[Key, Open] = {}
        """Subscriptions that wait for that."""
        self._ended: dict[Key, str] = {}
        """Durable subscriptions that ended on connections that are there: they may still be forgotten."""

    def open(self, message: Open, peer: Peer) -> None:
        """Someone subscribes."""
        request, desk = message.request, self._desk
        key, name = (peer, request.sub), request.name
        if key in desk.queues or key in self._opening:
            text = f"subscription {request.sub} is there already on this connection"
            self._refuse(key, Code.ALREADY_EXISTS, text)
            return
        if name and name not in desk.ledger.accounts and name not in self._new:
            self._new[name] = self._open_account(message)
        if name in self._new:
            self._opening[key] = message
        else:
            self._begin(message, peer, resumed=bool(name))

    def _open_account(self, message: Open) -> int:
        name, pattern = message.request.name, message.pattern.text
        floor = self._desk.end if message.position < 0 else message.position
        return self._desk.append(SubscriberOpened.at(name, pattern, message.since, floor, self._desk.time_us))

    def kept(self, number: int) -> None:
        """Accounts became durable: who waits for that goes on."""
        if not self._new:
            return
        for key, message in list(self._opening.items()):
            if self._new.get(message.request.name, 0) <= number:
                del self._opening[key]
                self._losses.lose_removed(message.request.name)
                self._overflow.opened(message.request.name)
                self._begin(message, key[0], resumed=False)
        self._new = {name: wanted for name, wanted in self._new.items() if wanted > number}

    def _begin(self, message: Open, peer: Peer, resumed: bool) -> None:
        desk, request = self._desk, message.request
        key = (peer, request.sub)
        account = desk.ledger.accounts.get(request.name) if request.name else None
        if account is not None and account.pattern != message.pattern:
            text = f"subscriber {request.name!r} was opened for {account.pattern.text!r}: use another name, or forget it"
            self._refuse(key, Code.FAILED_PRECONDITION, text)
            return
        if request.name:
            self._take_over(request.name)
        position = message.position if account is None else account.floor
        queue = self._queue(message, peer, position)
        if account is not None:
            self._resume(queue)
            desk.by_name[queue.name] = queue
            desk.floors[queue.name] = queue.floor
        self._hold(queue, message)
        if account is None and message.seen:
            self._skip(queue, message.seen)
        if queue.cursor >= desk.end:
            queue.cursor = -1
        desk.queues[key] = queue
        desk.index.add(queue.pattern, queue)
        rules = ([], []) if queue.is_durable else (desk.rules.handling(queue.pattern), desk.rules.never)
        desk.say(peer, Subscribed(request.sub, queue.floor, resumed, False, *rules))
        if not queue.is_durable and 0 <= position < self._losses.start:
            self._losses.tell_removed(queue, position)
        self._handing.pump(queue)

    def _queue(self, message: Open, peer: Peer, position: int) -> Queue:
        desk, request = self._desk, message.request
        queue = Queue(peer, request.sub, request.name, message.pattern, position, request.credit)
        queue.after = dict(message.after)
        queue.floor = desk.end if position < 0 else position
        queue.lanes = Lanes(desk.pauses.is_paused, lambda: desk.backing_off.setdefault(queue))
        # Nobody else is waiting for what an unnamed subscriber holds.
        queue.leases = Leases(desk.rules.lease_s) if desk.rules.lease_s and queue.is_durable else None
        return queue

    def _resume(self, queue: Queue) -> None:
        """A durable subscriber goes on: from its floor, without what has ended since, counting where it was."""
        account = self._desk.ledger.accounts[queue.name]
        queue.resumed_to = self._desk.end
        queue.ended = {stream: account.ended(stream) for stream in account.ends}
        queue.tallies = {stream: dict(tallies) for stream, tallies in account.tallies.items()}
        for stream, seq in account.since.items():
            queue.ended.setdefault(stream, SeqSet()).add(0, seq)

    def _hold(self, queue: Queue, message: Open) -> None:
        """What the subscriber has in hand from before is its own, and is not sent again."""
        for held in message.request.held:
            stream = (held.topic, held.source)
            queue.hold(stream, held.start, held.stop)
            if queue.leases is not None:
                for start, stop, tally in queue.alike(stream, held.start, held.stop):
                    attempt = 1 if tally is None else tally.acquired + 1
                    queue.leases.note(self._desk.now, stream, start, stop, attempt)
                self._desk.backing_off[queue] = None
        if message.request.held:
            queue.resumed_to = self._desk.end

    def _skip(self, queue: Queue, seen: dict[bytes, int]) -> None:
        """What overtook others came to the subscriber, and lies behind the position that it goes on from."""
        queue.resumed_to = self._desk.end
        for stream in self._desk.ledger.published:
            if (seq := seen.get(stream[1], 0)) and queue.pattern.matches(stream[0]):
                queue.ended.setdefault(stream, SeqSet()).add(0, seq + 1)

    def _take_over(self, name: str) -> None:
        """A second connection for the same name: the newer one goes on, the older one is told."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended != name}
        other = self._desk.by_name.get(name)
        if other is not None:
            self._drop((other.peer, other.sub))
            text = f"subscriber {name!r} was opened by another connection, which goes on from here"
            self._desk.say(other.peer, Unsubscribed(other.sub, Code.ABORTED, text))

    def _refuse(self, key: Key, code: Code, text: str) -> None:
        self._desk.say(key[0], Unsubscribed(key[1], code, text))

    def unsubscribe(self, key: Key, forget: bool) -> None:
        """Someone unsubscribes, or says of a subscription that it ended before that it may be forgotten."""
        ended = self._end(key)
        name = self._ended.pop(key, "") if ended is None and forget else ended
        if name and forget:
            self._forget(key, name)
        elif ended is not None:
            self._desk.say(key[0], Unsubscribed(key[1]))
            if name:
                self._ended[key] = name

    def _end(self, key: Key) -> str | None:
        """A subscription's name; None where there is no such subscription."""
        opening, queue = self._opening.pop(key, None), self._desk.queues.get(key)
        if queue is not None:
            self._drop(key)
            return queue.name
        return None if opening is None else opening.request.name

    def _forget(self, key: Key, name: str) -> None:
        """That is durable before it is confirmed."""
        number = self._desk.append(SubscriberClosed(name, self._desk.time_us))
        for known in (self._new, self._desk.floors, self._desk.recorded):
            known.pop(name, None)
        if (withhold := self._overflow.closed(name)) is not None:
            self._desk.effects.append(withhold)
        self._desk.promise(number, key[0], Unsubscribed(key[1], is_forgotten=True))

    def leave(self, peer: Peer) -> None:
        """A connection is gone."""
        for key in [key for key in self._desk.queues if key[0] == peer]:
            self._drop(key)
        self._opening = {key: message for key, message in self._opening.items() if key[0] != peer}
        self._ended = {key: name for key, name in self._ended.items() if key[0] != peer}

    def _drop(self, key: Key) -> None:
        queue = self._desk.queues.pop(key)
        self._desk.backing_off.pop(queue, None)
        self._desk.index.remove(queue.pattern, queue)
        if self._desk.by_name.get(queue.name) is queue:
            del self._desk.by_name[queue.name]
