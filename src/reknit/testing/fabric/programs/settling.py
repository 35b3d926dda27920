"""What programs that settle each event have in common, whether they share a queue or not."""

from __future__ import annotations

from typing import Any

from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import QuittingProgram, Scene
from reknit.testing.fabric.programs.watch import DeliveryWatch
from reknit.testing.fabric.record import Seen


class SettlingProgram(QuittingProgram):
    """Accepts, releases, fails and rejects events, or hangs."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        node: FabricNode,
        seen: Seen,
        *,
        is_durable: bool,
        is_member: bool = False,
    ) -> None:
        super().__init__(scene, name, node)
        self.seen, self.is_durable = seen, is_durable
        self.watch = DeliveryWatch(scene, seen, is_member)
        self.is_open = False

    async def settle(self, event: Any) -> None:
        """Settle an event as the plan says; in a calm fabric, and without a name, by accepting it."""
        plan, payload = self.scene.plan, self.scene.record.name(event)
        await self.think()
        weights = (1.0, plan.release, plan.fail, plan.reject, plan.hang)
        if self.scene.is_calm or not self.is_durable:
            weights = (1.0, 0.0, 0.0, 0.0, 0.0)
        match self.rng.choices(("accept", "release", "fail", "reject", "hang"), weights)[0]:
            case "release":
                self.watch.given_back(event)
                await event.release()
            case "fail":
                self.watch.given_back(event)
                await event.fail()
            case "hang":
                pass  # its lease ends
            case "reject":
                self.seen.rejected.add(payload)
                await event.reject(text="not wanted")
            case _:
                self.scene.record.accepted(self.seen, payload)
                self.watch.accepted(event)
                await event.accept()

    def on_lost(self, report: Any) -> None:
        """Note a loss that it was told of."""
        self.seen.lost.append((report.topic, report.source, report.start, report.stop))
