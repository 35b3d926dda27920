"""Real node processes, linked, and subscribers in this process that follow a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.session import Session, connect
from reknit.errors import Undelivered
from reknit.event import Event
from reknit.outcome import Outcome
from reknit.processes.process import NodeProcess, ending

CONFIG = """
[links]
beat_s = 0.2
timeout_s = 5.0
[transport]
reconnect_backoff_s_max = 0.3
[[topics]]
pattern = "orders/**"
distribution = "balanced"
[[topics]]
pattern = "near/**"
distribution = "closest"
[[topics]]
pattern = "all/**"
distribution = "multicast"
"""
ORDERS, NEAR, ALL = "orders/new", "near/new", "all/new"
PATIENCE_S = 150.0
Say = Callable[[Event], Awaitable[None] | None]
Log = list[tuple[str, int]]
"""(subscriber, seq) of every delivery, in order."""


def run(test: Callable[[], Awaitable[None]], patience_s: float = PATIENCE_S) -> None:
    """Run a test, and end it if it hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(patience_s):
            await test()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Wait for a condition. `run` bounds the time."""
    while True:
        holds = condition()
        if holds is True or (not isinstance(holds, bool) and await holds):
            return
        await asyncio.sleep(0.01)


class Fabric:
    """Nodes by name; "ab" in `links` means that b connects to a."""

    def __init__(self, folder: Path, links: list[str], names: str = "", edges: str = "") -> None:
        path = folder / "fabric.toml"
        path.write_text(CONFIG)
        self.nodes: dict[str, NodeProcess] = {}
        for name in sorted({*names, *"".join(links)}):
            options = ["--config", str(path), "--set", "journal.sync=false"]
            options += ["--set", "links.edge=true"] if name in edges else []
            self.nodes[name] = NodeProcess(folder, *options, name=name)
        for link in links:
            self.nodes[link[1]].command += ["--link", self.nodes[link[0]].url]

    def url(self, name: str) -> str:
        return self.nodes[name].url

    async def sees(self, name: str, others: str) -> None:
        """Return when a node reaches just these."""

        async def look() -> bool:
            async with connect(self.url(name), wait_s=60) as session:
                rows = await session.ask("links")
            return "".join(sorted(row["node"] for row in rows if row["via"])) == others

        await until(look)


@contextmanager
def fabric(folder: Path, *links: str, names: str = "", edges: str = "") -> Iterator[Fabric]:
    """Running nodes, none of which is left behind."""
    made = Fabric(folder, list(links), names, edges)
    with ending(*made.nodes.values()):
        for node in made.nodes.values():
            node.start()
        yield made
        for node in made.nodes.values():
            assert "Traceback" not in node.output(), node.output()


class Subscriber:
    """Takes events, and settles each as its script says."""

    def __init__(self, session: Session, topic: str, name: str, say: Say, log: Log) -> None:
        self.session, self.topic, self.name, self.say, self.log = session, topic, name, say, log
        self.opened = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.session.subscribe(self.topic, auto_accept=False) as events:
            self.opened.set()
            async for event in events:
                self.log.append((self.name, event.seq))
                done = self.say(event)
                if done is not None:
                    await done

    async def leave(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def subscribing(
    made: Fabric, log: Log, topic: str, **says: Say
) -> AsyncIterator[dict[str, Subscriber]]:
    """Subscribers a1, b1 …; each on the node that its name begins with. All nodes know them."""
    found: dict[str, Subscriber] = {}
    sessions: list[Session] = []
    try:
        for name, say in says.items():
            session = await connect(made.url(name[0]), wait_s=60).open()
            sessions.append(session)
            found[name] = Subscriber(session, topic, name, say, log)
            await found[name].opened.wait()
        await announced(made, topic, {name[0] for name in says})
        yield found
    finally:
        for subscriber in found.values():
            await subscriber.leave()
        for session in sessions:
            with suppress(Exception):
                await session.close()


async def announced(made: Fabric, topic: str, homes: set[str]) -> None:
    """Wait until every node knows that these nodes have subscribers."""

    async def look() -> bool:
        for name, node in made.nodes.items():
            if node.is_running:
                async with connect(node.url, wait_s=60) as session:
                    rows = await session.ask("links")
                known = {row["node"] for row in rows if row["subscriptions"] and row["via"]}
                if not homes - {name} <= known:
                    return False
        return True

    await until(look)


async def outcome(publisher: OutcomePublisher, payload: bytes = b"x") -> Outcome:
    """Publish one event, and return its outcome."""
    try:
        return await publisher.publish(payload)
    except Undelivered as error:
        print(error)
        return Outcome[type(error).__name__.upper()]


def accept(event: Event) -> None:
    event.accept()


async def slowly_accept(event: Event) -> None:
    await asyncio.sleep(0.001)
    event.accept()


def release(event: Event) -> None:
    event.release()


def reject(event: Event) -> None:
    event.reject(text="not for anyone")


def modify(event: Event) -> None:
    event.fail()


def hold(event: Event) -> None:
    """Never settle it."""
