"""Events that flow while something else changes: none may be lost, and none may come twice."""

from __future__ import annotations

from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from tests.node.node_processes import until


class Load:
    """A publisher that goes on until it is told to stop, and a subscriber that gets everything."""

    def __init__(self) -> None:
        self.published = 0
        self.is_over = False
        self.received: list[int] = []

    async def publish(self, session: Session) -> None:
        publisher = session.publisher("plant/1")
        while not self.is_over:
            await publisher.publish_many([b"%d" % (self.published + one) for one in range(100)])
            self.published += 100
        await publisher.close()

    async def receive(self, events: Subscription) -> None:
        async for event in events:
            self.received.append(int(event.payload))

    async def go_on(self, count: int = 1_000) -> None:
        """Return when so many more events have arrived."""
        enough = len(self.received) + count
        await until(lambda: len(self.received) >= enough)
