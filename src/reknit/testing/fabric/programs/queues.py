"""Programs that share a queue: each event of it goes to one of them."""

from __future__ import annotations

from typing import Any, Final

from reknit.ledger import QUEUES
from reknit.testing.checks.queue_audit import QueueAudit
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, QuittingProgram, Scene
from reknit.testing.fabric.programs.watch import DeliveryWatch
from reknit.testing.fabric.record import Seen

QUEUE: Final = "work"
PATTERNS: Final = ("plant/**", "plant/a", "car/*")


class QueueMember(QuittingProgram):
    """One of the members. They have one view of what the queue gets: an event goes to whom has room."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, seen: Seen) -> None:
        super().__init__(scene, name, node)
        self.seen = seen
        self.is_open = False
        self._watch = DeliveryWatch(scene, seen, is_member=True)

    async def listen(self) -> None:
        self.is_open = False
        async with (
            self.session() as session,
            session.subscribe(
                self.seen.pattern, queue=QUEUE, auto_accept=False, on_lost=self._on_lost
            ) as events,
        ):
            self.is_open = True
            self._watch.begin(lambda: events.is_settled)
            async for event in events:
                self._take(event)
                if self.quits():
                    break
                await self._settle(event)

    def crash(self) -> None:
        self.is_open = False
        super().crash()

    def _take(self, event: Any) -> None:
        record = self.scene.record
        record.received(self.seen, event.topic, event.source, event.seq, record.name(event))
        self._watch.taken(event)

    async def _settle(self, event: Any) -> None:
        plan, payload = self.scene.plan, self.scene.record.name(event)
        await self.think()
        weights = (1.0, plan.release, plan.fail, plan.reject, plan.hang)
        if self.scene.is_calm:
            weights = (1.0, 0.0, 0.0, 0.0, 0.0)
        match self.rng.choices(("accept", "release", "fail", "reject", "hang"), weights)[0]:
            case "release":
                self._watch.given_back(event)
                await event.release()
            case "fail":
                self._watch.given_back(event)
                await event.fail()
            case "hang":
                pass  # its lease ends
            case "reject":
                self.seen.rejected.add(payload)
                await event.reject(text="not wanted")
            case _:
                self.scene.record.accepted(self.seen, payload)
                await event.accept()

    def _on_lost(self, report: Any) -> None:
        self.seen.lost.append((report.topic, report.source, report.start, report.stop))


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
