"""Programs that subscribe to everything on some topics, durable or not, and settle as they like."""

from __future__ import annotations

from typing import Any

from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.programs.settling import SettlingProgram
from reknit.testing.fabric.record import Seen


class SubscribingProgram(SettlingProgram):
    """Subscribes, settles each event, and may leave and come back."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str, is_durable: bool) -> None:
        seen = Seen(name, pattern, node.name, is_durable)
        super().__init__(scene, name, node, seen, is_durable=is_durable)
        self.pattern = pattern
        self._lives = 0
        if is_durable:
            scene.record.seen[name] = seen

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
                self.pattern, name=name, auto_accept=False, on_lost=self.on_lost, **self.options()
            ) as events,
        ):
            self.is_open = True
            if self.is_durable:
                self.watch.begin(lambda: events.is_settled)
            async for event in events:
                self._take(event)
                if self.quits():
                    break
                await self.settle(event)
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
            self.watch.taken(event)
        else:
            if seq <= seen.last.get(series, 0):
                record.blame(
                    f"{seen.name} received {series[0]} {series[1].hex()} {seq} after {seen.last[series]}"
                )
            seen.last[series] = seq
