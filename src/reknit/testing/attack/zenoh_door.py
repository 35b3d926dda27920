"""The Zenoh door, tried with real Zenoh sessions. It is imported only where `zenoh` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import zenoh

from reknit.gateway.zenoh.session import zenoh_config
from reknit.testing.attack.actions import PATIENCE_S
from reknit.testing.attack.credentials import Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import LOBBY_TOPIC, SECRET, SECRET_TOPIC, Target

PAUSE_S: Final = 0.05
AFTER_ALL: Final = "the node took what came after it"


async def _in_network(target: Target, act: Callable[[Any], str]) -> str:
    """Do something in a Zenoh session that is connected to the node's, in a thread."""

    def run() -> str:
        with zenoh.open(zenoh_config([], [target.endpoint])) as session:
            return act(session)

    return await asyncio.to_thread(run)


async def _put(target: Target, topic: str, number: int) -> str:
    """Put a sample, and after it one that anonymous may, until the node has taken that."""
    loop, after = asyncio.get_running_loop(), f"lobby/after/{number}"

    def act(session: Any) -> str:
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            session.put(topic, b"x")
            session.put(after, b"x")
            if asyncio.run_coroutine_threadsafe(target.has_topic(after), loop).result(PATIENCE_S):
                return AFTER_ALL
        return "no answer"

    return await _in_network(target, act)


async def publish(target: Target, visitor: Visitor, number: int) -> str:
    """Put a sample on a topic of ann's."""
    return await _put(target, f"plant/attack/{number}", number)


async def publish_openly(target: Target, visitor: Visitor, number: int) -> str:
    """Put a sample where anonymous may publish."""
    return await _put(target, f"lobby/{number}", number)


async def _listen(target: Target, pattern: str) -> tuple[str, list[bytes]]:
    """Subscribe, and let ann publish her secret and an event in the lobby until the latter arrives."""
    loop, heard = asyncio.get_running_loop(), list[tuple[str, bytes]]()

    def act(session: Any) -> str:
        def note(sample: Any) -> None:
            heard.append((str(sample.key_expr), bytes(sample.payload)))

        subscribers = [session.declare_subscriber(one, note) for one in (pattern, LOBBY_TOPIC)]
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            asyncio.run_coroutine_threadsafe(target.say_secret(), loop).result(PATIENCE_S)
            asyncio.run_coroutine_threadsafe(target.say_openly(), loop).result(PATIENCE_S)
            if any(key == LOBBY_TOPIC for key, _ in heard):
                break
        for one in subscribers:
            one.undeclare()
        return AFTER_ALL if heard else "no answer"

    words = await _in_network(target, act)
    return words, [payload for _, payload in heard]


async def subscribe(target: Target, visitor: Visitor, number: int) -> str:
    """Subscribe to ann's topics."""
    words, heard = await _listen(target, "plant/**")
    if SECRET in heard:
        raise Happened
    return words


async def subscribe_openly(target: Target, visitor: Visitor, number: int) -> str:
    """Subscribe where anonymous may."""
    words, heard = await _listen(target, LOBBY_TOPIC)
    if heard:
        raise Happened
    return words


async def query(target: Target, visitor: Visitor, number: int) -> str:
    """Ask the network for ann's past events, in both ways that publishers' caches are asked."""

    def act(session: Any) -> str:
        for selector in (SECRET_TOPIC, f"{SECRET_TOPIC}/@adv/**?_anyke"):
            for reply in session.get(selector, timeout=1.0):
                if reply.ok is not None and bytes(reply.ok.payload) == SECRET:
                    return SECRET.decode()
        return "nothing was found"

    words = await _in_network(target, act)
    if words == SECRET.decode():
        raise Happened
    return words
