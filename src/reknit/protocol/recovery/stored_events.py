"""Storage acks: publishers that require them are told which caches have stored their events.

A cache that subscribes at a node reports what it has stored by its outcomes.

    Require                        the publisher is told what is stored already, and from now on
    CacheSubscribed                a subscription is a cache's
    Settle                         a cache accepted events: Send Stored to the publisher that requires it
    PeerLeft                       a publisher or a cache is gone; a cache may come back without its events
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from reknit.ledger import Ledger, Series
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.effects import Send
from reknit.protocol.machine import Machine, Peer, PeerLeft
from reknit.seqset import SeqSet
from reknit.wire.messages import Settle
from reknit.wire.recovery import Require, Stored


class CacheSubscribed(msgspec.Struct, frozen=True):
    """A cache subscribes. Its name is that of its durable subscription, or else one that no other cache has."""

    sub: int
    name: str


Input = Require | CacheSubscribed | Settle | PeerLeft


class StoredEvents:
    """The events that each cache has stored. What durable subscribers accepted is in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._publishers: dict[bytes, tuple[Peer, str]] = {}
        """By source: the publisher that requires storage acks, and its topic."""
        self._caches: dict[tuple[Peer, int], str] = {}
        self._stored: dict[tuple[str, Series], SeqSet] = {}
        self.effects: list[Send] = []
        """What `take_effects` returns next."""

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a publisher or a cache."""
        match message:
            case Settle():
                self._settled(message, peer)
            case Require(source=source, topic=topic):
                self._publishers[source] = (peer, topic)
                for name in self._caches.values():
                    self._tell(name, (topic, source))
            case CacheSubscribed(sub=sub, name=name):
                self._caches[peer, sub] = name
            case PeerLeft():
                self._left(peer)
            case _:
                assert_never(message)

    def _settled(self, message: Settle, peer: Peer) -> None:
        name = self._caches.get((peer, message.sub))
        if name is None:
            return
        for row in message.rows:
            if row.outcome == Outcome.ACCEPTED and row.start < row.stop:
                series = (row.topic, row.source)
                self._stored.setdefault((name, series), SeqSet()).add(row.start, row.stop)
                if row.source in self._publishers:
                    self._tell(name, series)

    def _tell(self, name: str, series: Series) -> None:
        publisher, topic = self._publishers[series[1]]
        stored = self._stored.get((name, series), SeqSet())
        account = self._ledger.accounts.get(name)
        if account is not None:
            stored = stored.union(account.ends.get(series, {}).get(FinalOutcome.ACCEPTED, SeqSet()))
        if topic == series[0] and stored:
            message = Stored(series[1], stored.first_missing(stored.first) - 1, name)
            self.effects.append(Send(publisher, message))

    def _left(self, peer: Peer) -> None:
        self._publishers = {source: row for source, row in self._publishers.items() if row[0] != peer}
        for key in [key for key in self._caches if key[0] == peer]:
            name = self._caches.pop(key)
            self._stored = {row: seqs for row, seqs in self._stored.items() if row[0] != name}

    def tick(self, now: float) -> None:
        """Nothing has a deadline."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Send]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects


_MACHINE: type[Machine[Input, Send]] = StoredEvents
