"""The figures of work queues: those that programs opened with `queue=`, and topics whose events go to one subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from reknit import environment
from reknit.errors import Gone
from reknit.ledger import ANYCAST, QUEUES, Account
from reknit.ledger.walk import HeldBy
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers
from reknit.protocol.anycast.path import Path
from reknit.protocol.queues.shared_queue import SharedQueue, key_of

LOOK_BYTES: Final = 1 << 18
"""How far to look for the oldest event that has not ended."""


class QueueFigures:
    """A row for each queue. `paths` gives the subscribers and neighbours that take events of shared topics."""

    def __init__(
        self, core: Core, peers: Peers, held_by: HeldBy, paths: Callable[[], Iterable[Path]]
    ) -> None:
        self._core = core
        self._peers = peers
        self._held_by = held_by
        self._paths = paths

    async def rows(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every queue. The node goes on with its work meanwhile."""
        accounts = self._core.journal.ledger.accounts
        found: list[dict[str, Any]] = []
        for prefix in (ANYCAST, QUEUES):
            counts = await self._counts(prefix)
            names = sorted(name for name in accounts if name.startswith(prefix))
            found += [
                self._row(name, accounts[name], counts.get(name, _NOTHING))
                for name in names
                if name in accounts
            ]
        return found

    async def _counts(self, prefix: str) -> dict[str, dict[str, int]]:
        """By queue: the sums of its rows in the ledger."""
        sums: dict[str, dict[str, int]] = {}
        for row in self._core.journal.ledger.walk(self._held_by, after=(prefix, "")):
            if row is None:
                await asyncio.sleep(0)
                continue
            if not row.subscriber.startswith(prefix):
                break
            counts = sums.setdefault(row.subscriber, dict(_NOTHING))
            counts["depth"] += row.in_flight
            for name in ("accepted", "dead_lettered", "lost"):
                counts[name] += getattr(row, name)
        return sums

    def _row(self, name: str, account: Account, counts: Mapping[str, int]) -> dict[str, Any]:
        queue = self._core.dispatch.queues.get(key_of(name))
        shared = queue if isinstance(queue, SharedQueue) else None
        tried = [count for by_seq in account.tallies.values() for count in by_seq.values()]
        is_anycast = name.startswith(ANYCAST)
        return {
            "queue": name.removeprefix(QUEUES),
            "pattern": account.pattern.text,
            "kind": "distribution" if is_anycast else "queue",
            "order": shared.order if shared is not None else "",
            "members": self._paths_of(account) if is_anycast else self._members(shared),
            **counts,
            "oldest_s": self._oldest_s(account) if counts["depth"] else None,
            "tried": len(tried),
            "attempts": max((count.acquired for count in tried), default=0),
        }

    def _members(self, queue: SharedQueue | None) -> list[dict[str, Any]]:
        members = [] if queue is None else list(queue.members.values())
        return [
            {"name": str(self._peers.get(one.peer) or "leaving"), "events": one.events, "is_node": False}
            for one in members
        ]

    def _paths_of(self, account: Account) -> list[dict[str, Any]]:
        return [
            {"name": path.name, "events": path.unsettled, "is_node": path.is_neighbour}
            for path in self._paths()
            if path.pattern is None or path.pattern.intersects(account.pattern)
        ]

    def _oldest_s(self, account: Account) -> float | None:
        """The age of the first event that has not ended; None if it is not near the place up to which all have."""
        journal = self._core.journal
        try:
            run = journal.read(max(account.floor, journal.start), None, LOOK_BYTES)
        except Gone:
            return None
        times = (entry.head.time_us for entry in run.entries if account.pattern.matches(entry.head.topic))
        first = next(times, None)
        return None if first is None else max(0.0, (environment.time_us() - first) / 1e6)


_NOTHING: Final = {"depth": 0, "accepted": 0, "dead_lettered": 0, "lost": 0}
