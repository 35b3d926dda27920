"""Programs that share a queue: each event of it goes to one of them."""

from __future__ import annotations

from typing import Any, Final

from reknit.ledger import QUEUES
from reknit.testing.checks.queue_audit import QueueAudit
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.programs.settling import SettlingProgram
from reknit.testing.fabric.record import Seen

QUEUE: Final = "work"
PATTERNS: Final = ("plant/**", "plant/a", "car/*")


class QueueMember(SettlingProgram):
    """One of the members. They have one view of what the queue gets: an event goes to whom has room."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, seen: Seen) -> None:
        super().__init__(scene, name, node, seen, is_durable=True, is_member=True)

    async def listen(self) -> None:
        self.is_open = False
        async with (
            self.session() as session,
            session.subscribe(
                self.seen.pattern,
                queue=QUEUE,
                order=self.scene.plan.queue_order,
                auto_accept=False,
                on_lost=self.on_lost,
            ) as events,
        ):
            self.is_open = True
            self.watch.begin(lambda: events.is_settled)
            async for event in events:
                self._take(event)
                if self.quits():
                    break
                await self.settle(event)

    def crash(self) -> None:
        self.is_open = False
        super().crash()

    def _take(self, event: Any) -> None:
        record = self.scene.record
        record.received(self.seen, event.topic, event.source, event.seq, record.name(event))
        self.watch.taken(event)


def queue_members(scene: Scene) -> list[Program]:
    """The members of the queue, which is on one node, and an audit of that node's dispatcher."""
    count = scene.plan.queue_members
    if not count:
        return []
    rng = scene.fabric.rng("queues")
    node = rng.choice([node for node in scene.fabric.nodes.values() if node.name not in scene.outposts])
    seen = scene.record.seen[QUEUES + QUEUE] = Seen(QUEUES + QUEUE, rng.choice(PATTERNS), node.name, True)
    watched = set[int]()

    def watch() -> None:
        core = node.node.core
        if id(core) not in watched:
            watched.add(id(core))
            QueueAudit(core.dispatch, core.journal, scene.record.blame).watch()

    node.on_start(watch)
    watch()
    return [QueueMember(scene, f"q{at}", node, seen) for at in range(count)]
