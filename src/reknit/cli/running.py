"""Runs a command's coroutine, with a node to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from reknit.cli.output import INTERRUPTED

if TYPE_CHECKING:
    from reknit.client.session import Session

T = TypeVar("T")

WAIT_S = 1.0
"""How long a command waits for a node that may just be starting."""


def run(program: Coroutine[Any, Any, T]) -> T:
    """The program's result. A signal ends it in order, with exit code 130."""
    from reknit.client.event_loops import run_until_signal

    try:
        return run_until_signal(program)
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


def node_url(given: str) -> str:
    """The address as it was given, or where the configuration says that a node listens.

    >>> node_url("localhost:7440")
    'tcp://localhost:7440'
    """
    if given:
        return given if "://" in given else f"tcp://{given}"
    from reknit.config import load

    return load().node.listen[0]


@asynccontextmanager
async def connected(url: str, name: str = "") -> AsyncIterator[Session]:
    """A session with the node. Raises `NotConnected` when there is none."""
    from reknit.client.session import connect
    from reknit.config import load

    async with connect(node_url(url), name=name, config=load(), wait_s=WAIT_S) as session:
        yield session


async def asked(url: str, what: str, **args: Any) -> Any:
    """The node's answer to one question."""
    async with connected(url) as session:
        return await session.ask(what, **args)
