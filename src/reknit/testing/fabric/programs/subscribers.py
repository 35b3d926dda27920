"""Programs that subscribe to everything on some topics, durable or not, and settle as they like."""

from __future__ import annotations

from typing import Any

from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import QuittingProgram, Scene
from reknit.testing.fabric.programs.watch import DeliveryWatch
from reknit.testing.fabric.record import Seen


class SubscribingProgram(QuittingProgram):
    """Subscribes, settles each event, and may leave and come back."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str, is_durable: bool) -> None:
        super().__init__(scene, name, node)
        self.pattern, self.is_durable = pattern, is_durable
        self.seen = Seen(name, pattern, node.name, is_durable)
        self._lives = 0
        self._watch = DeliveryWatch(scene, self.seen)
        if is_durable:
            scene.record.seen[name] = self.seen
        self.is_open = False

    async def listen(self) -> None:
        if not self.is_durable:
            self._lives += 1
            name = f"{self.name}.{self._lives}"
            self.seen = self.scene.record.seen[name] = Seen(name, self.pattern, self.node.name, False)
        self.seen.last.clear()
        self.is_open = False
        name = self.name if self.is_durable else ""
        async with (
            self.session() as session,
            session.subscribe(
                self.pattern, name=name, auto_accept=False, on_lost=self._on_lost, **self.options()
            ) as events,
        ):
            self.is_open = True
            if self.is_durable:
                self._watch.begin(lambda: events.is_settled)
            async for event in events:
                self._take(event)
                if self.quits():
                    break
                await self._settle(event)
        self._leave()

    def options(self) -> dict[str, Any]:
        """Further options of the subscription."""
        return {}

    def crash(self) -> None:
        self._leave()
        super().crash()

    def _leave(self) -> None:
        self.is_open = False
        if not self.is_durable:
            self.scene.record.seen.pop(self.seen.name, None)  # it is not owed anything any more

    def _take(self, event: Any) -> None:
        record, seen = self.scene.record, self.seen
        record.received(seen, event.topic, event.source, event.seq, record.name(event))
        series, seq = (event.topic, event.source), event.seq
        if self.is_durable:
            self._watch.taken(event)
        else:
            if seq <= seen.last.get(series, 0):
                record.blame(
                    f"{seen.name} received {series[0]} {series[1].hex()} {seq} after {seen.last[series]}"
                )
            seen.last[series] = seq

    async def _settle(self, event: Any) -> None:
        plan, payload = self.scene.plan, self.scene.record.name(event)
        await self.think()
        weights = (1.0, plan.release, plan.fail, plan.reject, plan.hang)
        if self.scene.is_calm or not self.is_durable:
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
                self._watch.accepted(event)
                await event.accept()

    def _on_lost(self, report: Any) -> None:
        self.seen.lost.append((report.topic, report.source, report.start, report.stop))
