"""The state of a node's links that outlasts a restart."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from reknit.protocol.routing.known_node import RememberedNode


class MissedSeries(msgspec.Struct):
    """What a neighbour misses, until it has recorded that."""

    position: int = 0
    """It is told of them after everything before this position."""
    ranges: dict[str, dict[str, list[tuple[int, int]]]] = {}
    """By topic and source (as hex): half-open ranges of seqs."""


class LinkMemory(msgspec.Struct):
    """The content of `links.json`. All but `added` is changed by the link machine only."""

    positions: dict[str, tuple[str, int]] = {}
    """By neighbour: its journal's epoch, and the position up to which everything from there is stored here."""
    first: dict[str, tuple[str, str, int]] = {}
    """By neighbour: its journal's epoch, this journal's epoch, and the position here at which it was first linked."""
    origins: dict[str, str] = {}
    """By source, as hex: the node on which it is published."""
    followed: dict[str, int] = {}
    """By pattern that readers of this journal follow: the position here from which on they do."""
    missed: dict[str, MissedSeries] = {}
    """By neighbour: events that were meant for it, and that retention removed before they were carried, for instance."""
    added: dict[str, int] = {}
    """Links that were added at run time, and their costs."""
    nodes: dict[str, RememberedNode] = {}
    """The other nodes as known last."""
    away: dict[str, int] = {}
    """Those of them that could not be reached, and since when, in microseconds since 1970."""

    def forget_nodes(self, before_us: int) -> None:
        """A restart: forget the nodes that were away since before a time."""
        for name in [name for name, since_us in self.away.items() if since_us < before_us]:
            self.nodes.pop(name, None)
            del self.away[name]

    def remember_nodes(
        self, changed: dict[str, RememberedNode | None], reachable: Container[str], now_us: int
    ) -> bool:
        """Nodes changed, or can be reached now, or no longer. Returns whether there is something to save."""
        for name, node in changed.items():
            if node is None:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = node
        before, away = self.away, (name for name in self.nodes if name not in reachable)
        self.away = {name: before.get(name, now_us) for name in away}
        return bool(changed) or self.away != before

    def position(self, name: str) -> tuple[str, int]:
        """A neighbour's journal, and the position there up to which everything is stored here; -1 at first."""
        return self.positions.get(name, ("", -1))

    def reached(self, name: str, epoch: str, position: int) -> bool:
        """Everything from a neighbour's journal up to this position is stored here; returns whether that is urgent.

        No event after the first position in a journal may be missed, even after a crash.
        """
        is_new = self.position(name)[0] != epoch
        self.positions[name] = (epoch, position)
        return is_new

    def is_replaced(self, name: str, journal: str, epoch: str) -> bool:
        """Whether a neighbour with this journal had another one when it was linked last, to this journal `epoch`."""
        known = self.first.get(name)
        return known is not None and known[0] != journal and known[1] == epoch

    def first_linked(self, name: str, journal: str, epoch: str, position: int, end: int) -> tuple[int, bool]:
        """A neighbour with this journal is linked: the position here from when that happened first, and whether that
        is now.

        Its subscriptions are known from then on, so the events after that position are carried to it, even if it
        requests them later, or again after a crash in which it forgot that it had done so. `position` is the one to
        remember if it is linked first now; `end` is where the journal ends.
        """
        known = self.first.get(name)
        if known is not None and known[:2] == (journal, epoch) and known[2] <= end:
            return known[2], False
        self.first[name] = (journal, epoch, position)
        return position, True
