"""The state of a node's links that outlasts a restart."""

from __future__ import annotations

import msgspec

from reknit.node.replication.state_file import StateFile


class SavedLinks(msgspec.Struct):
    """The content of `links.json`."""

    positions: dict[str, tuple[str, int]] = {}
    """By neighbour: its journal's epoch, and the position up to which everything from there is stored here."""
    first: dict[str, tuple[str, str, int]] = {}
    """By neighbour: its journal's epoch, this journal's epoch, and the position here at which it was first linked."""
    origins: dict[str, str] = {}
    """By source, as hex: the node on which it is published."""
    added: dict[str, int] = {}
    """Links that were added at run time, and their costs."""


class NeighbourPositions:
    """How far this node has stored each neighbour's journal."""

    def __init__(self, file: StateFile[SavedLinks]) -> None:
        self._file = file

    def of(self, name: str) -> tuple[str, int]:
        """A neighbour's journal, and the position there up to which everything is stored here; -1 at first."""
        return self._file.value.positions.get(name, ("", -1))

    def first_linked(self, name: str, journal: str, epoch: str, end: int) -> int:
        """A neighbour with this journal is linked: the position here when that happened first. `end` is where it is now.

        Its subscriptions are known from then on, so the events after that position are carried to it, even if it
        requests them later, or again after a crash in which it forgot that it had done so.
        """
        known = self._file.value.first.get(name)
        if known is not None and known[:2] == (journal, epoch) and known[2] <= end:
            return known[2]
        self._file.value.first[name] = (journal, epoch, end)
        self._file.save()
        return end

    def reached(self, name: str, epoch: str, position: int) -> None:
        """Everything from a neighbour's journal up to this position is stored here."""
        is_known = self.of(name)[0] == epoch
        self._file.value.positions[name] = (epoch, position)
        if is_known:
            self._file.save_soon()
        else:
            self._file.save()  # no event after this position may be missed, even after a crash
