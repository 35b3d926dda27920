"""The doors of other nodes: links, and bridges that copy events. Each is tried by a node of its own, a process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import reknit
from reknit.client.session import Session
from reknit.processes.process import NodeProcess
from reknit.testing.attack.actions import PATIENCE_S, Action
from reknit.testing.attack.credentials import ANN, ROOT, Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import SECRET, SECRET_TOPIC, Target

TRIES: Final = int(PATIENCE_S / 0.1)


@asynccontextmanager
async def another_node(
    target: Target, visitor: Visitor, number: int, *options: str
) -> AsyncIterator[Session]:
    """A node that shows a token to others, and a session with it."""
    folder = Path(tempfile.mkdtemp(prefix="attacker-"))
    shown: list[str] = []
    if visitor.token:
        (folder / "token").write_text(visitor.token)
        (folder / "token").chmod(0o600)
        shown = ["--set", f"security.token_file={folder}/token"]
    node = NodeProcess(folder, "--journal", "memory", *shown, *options, name=f"mallory-{number}")
    try:
        await asyncio.to_thread(node.start)
        async with reknit.connect(node.url) as session:
            yield session
    finally:
        node.kill()
        shutil.rmtree(folder, ignore_errors=True)


async def link(target: Target, visitor: Visitor, number: int) -> str:
    """Link a node with the target."""
    async with another_node(target, visitor, number, "--link", target.url) as mallory:
        for _ in range(TRIES):
            if any(row.get("node") == f"mallory-{number}" for row in await target.root.ask("links")):
                raise Happened
            if problem := next((row["problem"] for row in await mallory.ask("links") if row["problem"]), ""):
                return str(problem)
            await asyncio.sleep(0.1)
    return "no answer"


async def _problem(mallory: Session) -> str:
    """Why the bridges of a node do not carry events, or what became of those that they could not carry."""
    rows: list[dict[str, Any]] = await mallory.ask("routes")
    letters: dict[str, Any] = await mallory.ask("dead_letters")
    found = [str(row["problem"]) for row in rows] + [letter["text"] for _, letter in letters["letters"]]
    return next((one for one in found if one), "")


async def copy_out(target: Target, visitor: Visitor, number: int) -> str:
    """Let a bridge copy ann's events from the target."""
    async with another_node(target, visitor, number) as mallory:
        await mallory.add_route(target.url, "here", "plant/**")
        for _ in range(TRIES):
            await target.say_secret()
            if any(row["topic"] == SECRET_TOPIC for row in await mallory.ask("topics")):
                raise Happened
            if problem := await _problem(mallory):
                return problem
            await asyncio.sleep(0.1)
    return "no answer"


async def copy_in(target: Target, visitor: Visitor, number: int) -> str:
    """Let a bridge copy an event to the target."""
    async with another_node(target, visitor, number) as mallory:
        await mallory.add_route("here", target.url, "plant/**")
        await mallory.publish(f"plant/attack/{number}", SECRET)
        for _ in range(TRIES):
            if await target.has_topic(f"plant/attack/{number}"):
                raise Happened
            if problem := await _problem(mallory):
                return problem
            await asyncio.sleep(0.1)
    return "no answer"


NODES: Final = (
    Action("link", "link a node", ROOT, link),
    Action("bridge", "copy events from a node", ROOT, copy_out),
    Action("bridge", "copy events to a node", ANN, copy_in, "plant/attack/{}"),
)
