"""Owners of sources: a source belongs to the identity of the first peer whose events of it were taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reknit.batch_layout import Head
from reknit.ledger import Ledger
from reknit.node.core.shell import Edge
from reknit.protocol.effects import AppendRecord
from reknit.protocol.machine import Peer
from reknit.records import SourceOwned


class SourceOwners:
    """Records owners, each once. The ledger has them, also after a restart."""

    def __init__(
        self,
        ledger: Ledger,
        edge: Edge,
        write: Callable[[AppendRecord, float], None],
        next_number: Callable[[], int],
        now_us: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._edge = edge
        self._write = write
        self._next_number = next_number
        self._now_us = now_us

    def taken(self, peer: Peer, heads: Sequence[Head], now: float) -> None:
        """Events of a peer were taken."""
        owners = self._ledger.owners
        for head in heads:
            if head.source not in owners and (owner := self._edge.owner(peer, head.topic)):
                record = SourceOwned(head.topic, head.source, owner, self._now_us())
                self._write(AppendRecord(self._next_number(), record), now)
