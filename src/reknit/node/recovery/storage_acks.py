"""Storage acks: publishers that require them are told which caches have stored their events."""

from __future__ import annotations

from reknit.ledger import Ledger, Series
from reknit.node.peers.peers import Peers, PeerState
from reknit.outcome import FinalOutcome, Outcome
from reknit.seqset import SeqSet
from reknit.wire.messages import Settle, Subscribe
from reknit.wire.recovery import Require, Stored


class StoredEvents:
    """The events that each cache has stored: a cache that subscribes here reports them by its outcomes."""

    def __init__(self, *, ledger: Ledger, peers: Peers) -> None:
        self._ledger = ledger
        self._peers = peers
        self._publishers: dict[bytes, tuple[int, str]] = {}
        """By source: the connection of the publisher that requires storage acks, and its topic."""
        self._caches: dict[tuple[int, int], str] = {}
        self._stored: dict[tuple[str, Series], SeqSet] = {}

    def require(self, message: Require, peer: PeerState) -> None:
        """A publisher is told of every cache that stores its events; those that are stored already are told at once."""
        self._publishers[message.source] = (peer.id, message.topic)
        for key, name in self._caches.items():
            self._tell(key, name, (message.topic, message.source))

    def watch(self, message: Subscribe | Settle, peer: PeerState) -> None:
        """A cache subscribes, or settles events that it has stored."""
        key = (peer.id, message.sub)
        if isinstance(message, Subscribe):
            if message.is_cache:
                self._caches[key] = message.name or f"{peer.name}/{message.sub}"
            return
        name = self._caches.get(key)
        if name is None:
            return
        for row in message.rows:
            if row.outcome == Outcome.ACCEPTED and row.start < row.stop:
                series = (row.topic, row.source)
                self._stored.setdefault((name, series), SeqSet()).add(row.start, row.stop)
                if row.source in self._publishers:
                    self._tell(key, name, series)

    def _tell(self, key: tuple[int, int], name: str, series: Series) -> None:
        peer_id, topic = self._publishers[series[1]]
        peer = self._peers.get(peer_id)
        stored = self._stored.get((name, series), SeqSet())
        account = self._ledger.accounts.get(name)
        if account is not None:
            stored = stored.union(account.ends.get(series, {}).get(FinalOutcome.ACCEPTED, SeqSet()))
        if peer is not None and topic == series[0] and stored:
            peer.send(Stored(series[1], stored.first_missing(stored.first) - 1, name))

    def left(self, peer_id: int) -> None:
        """A connection is gone: its caches may come back without their events, unless they are durable."""
        self._publishers = {source: row for source, row in self._publishers.items() if row[0] != peer_id}
        for key in [key for key in self._caches if key[0] == peer_id]:
            name = self._caches.pop(key)
            self._stored = {row: seqs for row, seqs in self._stored.items() if row[0] != name}
