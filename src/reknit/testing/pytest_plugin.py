"""A pytest plugin for tests of your own programs: nodes and sessions as fixtures.

Add `pytest_plugins = ["reknit.testing.pytest_plugin"]` to your `conftest.py`:

    def test_orders_are_booked(reknit_session):
        with reknit_session.subscribe("orders/**") as events:
            reknit_session.publish("orders/new", b"7")
            assert next(events).payload == b"7"

`reknit_node` is a node with its journal in memory, new for every test; `reknit_session` a blocking session with it, and
`reknit_fabric` three linked nodes. All run in threads of this process and listen on ports that are free. For crashes and
broken networks there is `reknit.testing.fabric.plugin`, which is turned on with this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # loaded by the tests that use a fixture
    from reknit.client.blocking.session import SyncSession
    from reknit.config import Config
    from reknit.server import Node

pytest_plugins = ["reknit.testing.fabric.plugin"]

PATIENCE_S = 60.0
FABRIC_NODES = 3


class RunningNode:
    """A node that runs until the end of a test."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.url = node.urls[0]
        """Its address, for `reknit.connect` and programs under test."""

    def session(self, **options: Any) -> SyncSession:
        """A blocking session, to be used with `with`."""
        from reknit.client.blocking.session import connect_sync

        return connect_sync(self.url, **options)

    def wait_settled(self, pattern: str = "**", patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Return when durable subscribers have ended every event on these topics; gives the rows of the ledger."""
        with self.session() as session:
            rows = wait_until(lambda: _settled(session.ledger(pattern)), patience_s)
        assert isinstance(rows, list)
        return rows

    def dead_letters(self) -> list[Any]:
        """The dead letters that wait, the oldest first: `topic`, `payload`, `reason`, `code`, `text`, `attempts`."""
        import msgspec

        from reknit.dead_letter import DeadLetterContent

        with self.session() as session:
            rows = session.ask("dead_letters")["letters"]
        return [msgspec.convert(row, DeadLetterContent) for _, row in rows]


def _settled(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return rows if rows and not any(row["in_flight"] for row in rows) else None


def wait_until(look: Callable[[], object], patience_s: float = PATIENCE_S) -> object:
    """Look again and again until there is something to see, and return it. Raises `AssertionError` in the end."""
    until = time.monotonic() + patience_s
    while not (seen := look()):
        assert time.monotonic() < until, f"nothing was seen within {patience_s} s"
        time.sleep(0.02)
    return seen


@contextmanager
def running_node(config: Config) -> Iterator[RunningNode]:
    """A node with this configuration, in a thread of its own."""
    from reknit.client.blocking.loop_thread import LoopThread
    from reknit.server import build_node

    thread, node = LoopThread(), build_node(config)
    try:
        thread.run(node.start())
        try:
            yield RunningNode(node)
        finally:  # a loop with open sockets can't be closed
            thread.run(node.stop())
            thread.run(asyncio.sleep(0))
    finally:
        thread.stop()


def memory_config(name: str, links: tuple[str, ...] = ()) -> Config:
    """A node that listens on a free port and keeps nothing on disk."""
    from reknit.config import Config, JournalSettings, LinkSettings, NodeSettings

    return Config(
        node=NodeSettings(name=name, listen=("tcp://127.0.0.1:0",)),
        journal=JournalSettings(kind="memory"),
        links=LinkSettings(to=links),
    )


@pytest.fixture
def reknit_node() -> Iterator[RunningNode]:
    """A node that has nothing yet."""
    with running_node(memory_config("test")) as node:
        yield node


@pytest.fixture
def reknit_session(reknit_node: RunningNode) -> Iterator[SyncSession]:
    """A blocking session with `reknit_node`."""
    with reknit_node.session() as session:
        yield session


@pytest.fixture
def reknit_fabric() -> Iterator[list[RunningNode]]:
    """Three nodes in a row: what is published at the first reaches subscribers at the last."""
    with ExitStack() as stack:
        nodes: list[RunningNode] = []
        for number in range(FABRIC_NODES):
            links = (nodes[-1].url,) if nodes else ()
            nodes.append(stack.enter_context(running_node(memory_config(f"test-{number}", links))))
        for node in (nodes[0], nodes[-1]):
            with node.session() as session:
                wait_until(lambda: _are_reached(session.ask("links")))
        yield nodes


def _are_reached(links: list[dict[str, Any]]) -> bool:
    return sum(row["state"] in ("linked", "reached") for row in links) == FABRIC_NODES - 1
