"""What must hold for nodes that get events over relays, bridges or alignment; see `checks.events`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.seqset import SeqSet
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import REDRIVEN


def nothing_is_stored_twice(scene: Scene) -> Iterator[str]:
    """A node's journal has every event once, by whatever ways it came."""
    for node in scene.fabric.nodes.values():
        for series, (start, stop) in _twice(node):
            yield f"{node.name} stored {series[0]} {series[1].hex()} [{start}, {stop}) twice"


def _twice(node: FabricNode) -> Iterator[tuple[tuple[str, bytes], tuple[int, int]]]:
    journal, stored = node.node.journal, dict[tuple[str, bytes], SeqSet]()
    position = journal.start
    while position < journal.end:
        run = journal.read(position)
        for entry in run.entries:
            head = entry.head
            seqs = stored.setdefault((head.topic, head.source), SeqSet())
            for bounds in seqs.overlap(head.first, head.stop):
                yield (head.topic, head.source), bounds
            seqs.add(head.first, head.stop)
        if run.next_position <= position:
            return
        position = run.next_position


def nothing_goes_in_circles(scene: Scene) -> Iterator[str]:
    """A bridge out of an outpost carries what was published there, and nothing that came from where it leads to."""
    if len(scene.plan.feeds) != 1 or scene.plan.feeds[0] not in ("push", "pull") or scene.plan.nodes > 1:
        return
    outpost = scene.fabric.nodes["o0"].node
    published = sum(
        sent.publisher == REDRIVEN or scene.homes.get(sent.publisher) == "o0"
        for sent in scene.record.sent.values()
    )
    for row in outpost.bridges.rows():
        if row["in"] == "here" and row["events"] > published:
            yield f"o0 sent {row['events']} events back, of {published} that were published there"


REPLICA_CHECKS: Final = (nothing_is_stored_twice, nothing_goes_in_circles)
