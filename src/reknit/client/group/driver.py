"""Runs the machine of one member on an event loop: datagrams in, effects out, one timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from random import Random
from typing import Final

import msgspec

from reknit import environment
from reknit.client.group.datagrams import GroupDatagrams, GroupTransport
from reknit.client.group.incoming_datagrams import IncomingDatagrams
from reknit.client.group.keys import CHECK_S, GroupKeys
from reknit.connection.deadline_timer import DeadlineTimer
from reknit.environment import monotonic
from reknit.errors import LocalError
from reknit.protocol.multicast.effects import (
    GroupEffect,
    SendBatch,
    SendPieces,
    SendToAddress,
    SendToGroup,
    ViewInstalled,
)
from reknit.protocol.multicast.member import GivenMembership, GroupMember
from reknit.protocol.multicast.membership import Membership
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.transport.udp import parse_address
from reknit.view import Member
from reknit.wire.bundle import OVERHEAD_BYTES, group_hash
from reknit.wire.sealed import SEAL_BYTES

log = logging.getLogger("reknit.group")

PIECES_MAX: Final = 43
"""A batch is cut into at most this many pieces: as many of an Ethernet frame's size as one system call sends."""


class GroupDriver:
    """Sends the machine's messages, and passes the effects for the application to `on_effect`."""

    def __init__(
        self,
        name: str,
        topic: str,
        transport: GroupTransport,
        on_effect: Callable[[GroupEffect], None],
        keys: GroupKeys | None = None,
    ) -> None:
        self.transport = transport
        self.is_turn_due = False
        self._name, self._topic = name, topic
        self._keys = keys
        self._keys_timer: asyncio.TimerHandle | None = None
        self._hash = group_hash(name)
        self._on_effect = on_effect
        self._timer = DeadlineTimer(self.turn)
        self._is_stopped = False
        self._failures = 0

    async def start(
        self, member: str, seeds: Sequence[str], wanted: GroupSettings, *, is_given: bool = False
    ) -> None:
        """Open the transport and make the machine. With `is_given`, `give` sets the members."""
        self._loop = asyncio.get_running_loop()
        for seed in seeds:
            parse_address(seed)
        await self.transport.listen()
        settings = self._fit_transport(wanted)
        self._ack_s = settings.ack_s
        me = Member(environment.token_bytes(16), member, self.transport.address)
        self.id = me.id
        self._seal = None if self._keys is None else self._keys.seal(self._hash, me.id)
        self._datagrams = GroupDatagrams(self._hash, me.id, self.transport, self._seal)
        self.incoming = IncomingDatagrams(self._name, self._hash, me.id, self._seal)
        rng = Random(me.id)
        membership = GivenMembership(me) if is_given else Membership(me, settings, rng, seeds, monotonic())
        self.machine = GroupMember(
            self._topic, settings, membership, rng, environment.time_us() / 1e6 - monotonic()
        )
        self.multicast = self.machine.multicast
        self.sender = self.multicast.sender
        await self.transport.open(self._on_datagram, self._on_drained)
        if isinstance(membership, GivenMembership):
            membership.give([me])
        self._watch_keys()
        self.turn()

    def _fit_transport(self, wanted: GroupSettings) -> GroupSettings:
        piece_bytes = self.transport.piece_bytes
        if self._keys is not None:
            piece_bytes = min(piece_bytes, self.transport.datagram_bytes - OVERHEAD_BYTES - SEAL_BYTES)
        return msgspec.structs.replace(
            wanted,
            piece_bytes=piece_bytes,
            buffer_bytes=self.transport.buffer_bytes,
            batch_bytes_max=min(wanted.batch_bytes_max, PIECES_MAX * piece_bytes),
        )

    def give(self, members: Sequence[Member]) -> None:
        """Set the members of a group that does not discover them itself."""
        membership = self.machine.membership
        if not isinstance(membership, GivenMembership):
            raise LocalError(
                "this group discovers its members itself; join it with is_given=True to set them"
            )
        if self.id not in [member.id for member in members]:
            raise LocalError("the given members do not include this one; add group.me")
        membership.give(list(members))
        self.turn()

    async def stop(self) -> None:
        """Stop the machine and close the transport."""
        self._is_stopped = True
        self._timer.cancel()
        if self._keys_timer is not None:
            self._keys_timer.cancel()
        await self.transport.close()

    # -- keys

    def _watch_keys(self) -> None:
        if self._keys is None:
            host = self.transport.address.rpartition(":")[0]
            if not _is_loopback(host):
                risk = "anyone on the network can read its events and send others: set group.key_file"
                log.warning("group %r leaves this host at %s without a key: %s", self._name, host, risk)
        elif self._keys.path:
            self._keys_timer = self._loop.call_later(CHECK_S, self._check_keys)

    def _check_keys(self) -> None:
        assert self._keys is not None
        if self._keys.has_changed():
            self.use_keys(self._keys.shared)
        self._keys_timer = self._loop.call_later(CHECK_S, self._check_keys)

    def use_keys(self, keys: SharedKeys) -> None:
        """Use and accept other keys from now on."""
        if self._seal is None:
            raise LocalError(f"group {self._name!r} was joined without a key; join it again with one")
        self._seal.use(keys)

    # -- turns

    def acknowledge(self, source: bytes, seq: int) -> None:
        """The application has a source's events up to `seq`. Usually they are acked with others, later."""
        now = monotonic()
        if self.multicast.mark_delivered(source, seq, now):
            self.turn()
        elif not self.is_turn_due and self._timer.at > now + self._ack_s:
            # only an ack may have become due, and not before that time
            self._set_timer(now, self.machine.next_deadline())

    def acknowledge_soon(self, source: bytes, seq: int) -> None:
        """As `acknowledge`, while effects are being performed: they come first."""
        self.multicast.mark_delivered(source, seq, monotonic())
        self.turn_soon()

    def turn_soon(self) -> None:
        """Take a turn after everything else that the event loop has to do now."""
        if not self.is_turn_due:
            self.is_turn_due = True
            self._loop.call_soon(self.turn)

    def _on_drained(self) -> None:
        """Datagrams came. Pieces of an incomplete batch need no turn, but perhaps an earlier timer."""
        now = monotonic()
        deadline = self.machine.next_deadline()
        if deadline is not None and deadline <= now:
            self.turn()
        else:
            self._set_timer(now, deadline)

    def turn(self) -> None:
        """Run the machine: send gathered messages, deliver events, and set the timer."""
        self.is_turn_due = False
        if self._is_stopped:
            return
        now = monotonic()
        self.machine.tick(now)
        self._perform_all(now)
        self._set_timer(now, self.machine.next_deadline())

    def send_closed(self) -> None:
        """Send full batches at once; the open one may grow until the end of the turn."""
        now = monotonic()
        self.sender.send_closed(now)
        self._perform_all(now)
        self.turn_soon()

    def _set_timer(self, now: float, deadline: float | None) -> None:
        if deadline is None:
            return
        if deadline <= now:
            self.turn_soon()
        else:
            self._timer.set(deadline, now)

    # -- effects

    def _perform_all(self, now: float) -> None:
        while effects := self.machine.take_effects():
            for effect in effects:
                try:
                    self._perform(effect)
                except Exception:
                    self._failed(effect)
        try:
            self._datagrams.flush(self.sender.outbox.window.acked)
        except Exception:
            self._failed("sending")

    def _failed(self, what: object) -> None:
        """An effect or a message failed. It is logged, and the others of the turn are performed all the same."""
        self._failures += 1
        if self._failures.bit_count() == 1:  # the 1st, 2nd, 4th … so that a stranger can't fill the log
            log.exception("%s: %.200r failed (failure %d)", self._topic, what, self._failures)

    def _perform(self, effect: GroupEffect) -> None:
        match effect:
            case SendBatch():
                self._datagrams.to_peer(effect.peer).add_batch(effect.batch, effect.size, effect.pieces)
            case SendPieces():
                bundler = self._datagrams.to_peer(effect.peer)
                for piece in effect.pieces:
                    bundler.add_piece(piece)
            case SendToGroup():
                self._datagrams.to_peer(effect.peer).add(effect.message)
            case SendToAddress():
                self._datagrams.to_address(effect.address).add(effect.message)
            case ViewInstalled():
                self._datagrams.set_members(effect.view.members)
                self._on_effect(effect)
            case _:
                self._on_effect(effect)

    # -- datagrams

    def _on_datagram(self, data: bytes | memoryview, address: tuple[str, int]) -> None:
        read = self.incoming.read(data, address)
        if read is None:
            return
        sender, items = read
        if sender == self.id:
            return
        self._datagrams.learn(sender, items[0] if items else None, address)
        now = monotonic()
        for item in items:
            try:
                self.machine.receive(item, sender, now)
            except Exception:
                self._failed(item)

    @property
    def counts(self) -> dict[str, int]:
        """What the machine counted, and the datagrams that were refused: by reason, and all of them as dropped."""
        refused, counts = self.incoming.refused, dict(self.multicast.counts)
        counts["dropped"] += refused.total()
        return counts | {f"refused_{why}": count for why, count in refused.items()}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
