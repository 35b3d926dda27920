"""A check while a fabric runs: commits go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reknit.testing.fabric.nodes import FabricNode

COMMIT_S_MAX: Final = 2.5
"""How long staged data may wait for a commit, when nothing fails."""


class CommitWatch:
    """Looks at the journals of nodes again and again while nothing fails."""

    def __init__(self, nodes: Mapping[str, FabricNode]) -> None:
        self._nodes = nodes
        self._since: dict[str, tuple[int, float]] = {}
        """By node: the end of its journal, and since when something waits behind it."""

    def look(self, now: float) -> Iterator[str]:
        """Everything that a node stages is committed soon."""
        for node in self._nodes.values():
            if not node.is_up or not node.is_running or node.node.journal.staged_end == node.node.journal.end:
                self._since.pop(node.name, None)
                continue
            end = node.node.journal.end
            before, since = self._since.setdefault(node.name, (end, now))
            if before != end:
                self._since[node.name] = (end, now)
            elif now > since + COMMIT_S_MAX:
                yield f"at {now:.4f}: {node.name} has staged entries that no commit has written for {now - since:.1f} s"
