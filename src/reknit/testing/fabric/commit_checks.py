"""Checks of durability while a fabric runs: what a program is told to be stored is durable, and commits go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reknit.batch import SEQ_MAX, Batch
from reknit.errors import Gone
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import Sent

COMMIT_S_MAX: Final = 2.5
"""How long staged data may wait for a commit, when nothing fails."""


def stored_events_are_durable(scene: Scene, node: FabricNode, publisher: Any, sent: Sent) -> Iterator[str]:
    """An event is durable on its node when its publisher is told that it is stored."""
    plan = scene.plan
    may_be_gone = plan.retain_events_max or plan.retain_bytes_max or plan.retain_s_max or plan.flip_share
    if not node.is_up or may_be_gone or scene.replaced:
        return
    journal = node.node.journal
    for entry in reversed(journal.find(publisher.topic, publisher.source, 1, SEQ_MAX)):
        if entry.position < journal.end:
            try:
                if sent.payload in list(map(bytes, Batch.parse(journal.fetch(entry)).payloads())):
                    return
            except Gone:
                return
    now = scene.fabric.loop.now
    yield f"at {now:.4f}: {sent.publisher} was told that {sent.payload!r} is stored, and {node.name} has not stored it"


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
