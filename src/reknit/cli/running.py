"""Runs a command's coroutine, connected to a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import typer

from reknit.cli.output import INTERRUPTED
from reknit.client.event_loops import Signalled, run_until_signal
from reknit.client.session import Session, connect
from reknit.config import load

T = TypeVar("T")

WAIT_S = 1.0
"""How long a command waits for a node that may still be starting."""


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. A signal shuts it down cleanly, with exit code 130, or 143 for SIGTERM."""
    try:
        return run_until_signal(program)
    except Signalled as error:
        raise typer.Exit(128 + error.number) from None
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


def node_url(given: str) -> str:
    """The given address as a URL, or the address on which the configuration lets a node listen.

    >>> node_url("localhost:7440")
    'tcp://localhost:7440'
    """
    if given:
        return given if "://" in given else f"tcp://{given}"
    return load().node.listen[0]


@asynccontextmanager
async def connected(url: str, name: str = "") -> AsyncIterator[Session]:
    """A session with the node. Raises `NotConnected` if it cannot be reached."""
    async with connect(node_url(url), name=name, config=load(), wait_s=WAIT_S) as session:
        yield session


async def asked(url: str, what: str, **args: Any) -> Any:
    """The node's response to one admin request."""
    async with connected(url) as session:
        return await session.ask(what, **args)


async def asked_ledger(url: str, topic: str = "", unbalanced: bool = False) -> list[dict[str, Any]]:
    """The rows of the node's ledger."""
    async with connected(url) as session:
        return await session.ledger(topic, unbalanced)
