"""The AMQP door, tried with the blocking client of Proton. It is imported only where Proton is installed."""

from __future__ import annotations

import asyncio
from typing import Any

from proton import ConnectionException, Message
from proton.utils import BlockingConnection, LinkDetached, SendException

from reknit.testing.attack.credentials import Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import SECRET, Target

PATIENCE_S = 5.0


def _connect(target: Target, visitor: Visitor) -> Any:
    options: dict[str, Any] = {"allowed_mechs": "ANONYMOUS"}
    if visitor.token:
        options = {
            "allowed_mechs": "PLAIN",
            "allow_insecure_mechs": True,
            "user": visitor.user,
            "password": visitor.token,
        }
    url = f"amqp://127.0.0.1:{target.ports['amqp']}"
    return BlockingConnection(url, timeout=PATIENCE_S, sasl_enabled=True, **options)


def _publish(target: Target, visitor: Visitor, topic: str) -> str:
    try:
        connection = _connect(target, visitor)
        try:
            connection.create_sender(topic).send(Message(b"x"))
        finally:
            connection.close()
    except (ConnectionException, LinkDetached, SendException) as error:
        return str(error)
    return "done"


async def publish(target: Target, visitor: Visitor, number: int) -> str:
    """Send a message."""
    return await asyncio.to_thread(_publish, target, visitor, f"plant/attack/{number}")


async def subscribe(target: Target, visitor: Visitor, number: int) -> str:
    """Open a receiver, and take a message that is published after that."""
    loop = asyncio.get_running_loop()

    def act() -> str:
        try:
            connection = _connect(target, visitor)
            try:
                receiver = connection.create_receiver("plant/secret", credit=10)
                asyncio.run_coroutine_threadsafe(target.say_secret(), loop).result(PATIENCE_S)
                message = receiver.receive(timeout=PATIENCE_S)  # its body is a view of it
                return str(bytes(message.body), "utf-8")
            finally:
                connection.close()
        except (ConnectionException, LinkDetached) as error:
            return str(error)

    words = await asyncio.to_thread(act)
    if words == SECRET.decode():
        raise Happened
    return words
