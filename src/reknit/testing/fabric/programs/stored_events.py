"""A check while a fabric runs: what a program is told to be stored is durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from reknit.batch import SEQ_MAX, Batch
from reknit.errors import Gone
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import Sent

NEWEST: Final = 20
"""How many events back an event is looked for at first."""


def stored_events_are_durable(scene: Scene, node: FabricNode, publisher: Any, sent: Sent) -> Iterator[str]:
    """An event is durable on its node when its publisher is told that it is stored."""
    plan = scene.plan
    may_be_gone = plan.retain_events_max or plan.retain_bytes_max or plan.retain_s_max or plan.flip_share
    if not node.is_up or may_be_gone or scene.replaced:
        return
    newest = node.node.journal.sources(publisher.topic).get(publisher.source, 0)
    for first in (max(newest - NEWEST, 1), 1):  # mostly it is one of the newest
        if _holds(node, publisher.topic, publisher.source, first, sent.payload):
            return
    now = scene.fabric.loop.now
    yield f"at {now:.4f}: {sent.publisher} was told that {sent.payload!r} is stored, and {node.name} has not stored it"


def _holds(node: FabricNode, topic: str, source: bytes, first: int, payload: bytes) -> bool:
    """Whether one of the durable events from `first` on has this payload; true if that can't be read any more."""
    journal = node.node.journal
    for entry in reversed(journal.find(topic, source, first, SEQ_MAX)):
        if entry.position < journal.end:
            try:
                if payload in list(map(bytes, Batch.parse(journal.fetch(entry)).payloads())):
                    return True
            except Gone:
                return True
    return False
