"""A check while a fabric runs: commits go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reknit.testing.fabric.nodes import FabricNode

COMMIT_S_MAX: Final = 0.5
"""How long staged data may wait for a commit, where disks do not fail."""
RETRY_S_MAX: Final = 2.5
"""How long it may wait after a disk has failed: the commit is tried again."""


class CommitWatch:
    """Looks at the journals of nodes again and again. Where disks fail, it looks once they do not fail any more."""

    def __init__(self, nodes: Mapping[str, FabricNode], has_bad_disks: bool) -> None:
        self.has_bad_disks = has_bad_disks
        self._nodes = nodes
        self._wait_s_max = RETRY_S_MAX if has_bad_disks else COMMIT_S_MAX
        self._since: dict[str, tuple[int, float]] = {}
        """By node: what its core knows to be durable, and since when something waits behind it."""

    def look(self, now: float) -> Iterator[str]:
        """Everything that a node stages is committed soon, and its core is told.

        Saving the index commits, too, but tells nobody.
        """
        for node in self._nodes.values():
            if not node.is_up or not node.is_running or not has_staged(node):
                self._since.pop(node.name, None)
                continue
            end = node.node.core.tail.end
            before, since = self._since.setdefault(node.name, (end, now))
            if before != end:
                self._since[node.name] = (end, now)
            elif now > since + self._wait_s_max:
                yield f"at {now:.4f}: {node.name} has staged entries that wait for a commit for {now - since:.1f} s"


def has_staged(node: FabricNode) -> bool:
    """Whether something is staged that a node's core does not know to be durable."""
    return node.node.core.tail.end < node.node.journal.staged_end
