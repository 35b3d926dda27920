"""Programs that use what AMQP has besides plain messages, and know what the node has to say to each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.amqp.visits import AmqpVisit, amqp_visit
from reknit.testing.fabric.programs.program import AGAIN_S, EXPECTED, Program, Scene, is_peaceful

CREDIT: Final = 20
MESSAGE_BYTES_MAX: Final = 40_000
LINKS_MAX: Final = 8
RELAY_TOPICS_MAX: Final = 3
"""What visitors expect of a node: the longest message, links of a connection, topics of a link without an address."""
INVALID, DENIED = "amqp:invalid-field", "amqp:unauthorized-access"
FULL, LONG = "amqp:resource-limit-exceeded", "amqp:link:message-size-exceeded"


class AmqpVisitingProgram(Program):
    """Visits its node again and again, each time on a connection of its own. An act gives what was wrong.

    An act that a fault interrupts is not judged. Without faults nothing may interrupt one.
    """

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._count = 0

    async def live(self) -> None:
        acts: list[Callable[[AmqpVisit], Awaitable[str]]] = [
            self._open_bad_links,
            self._open_many_links,
            self._send_every_body,
            self._send_settled,
            self._name_topics,
            self._send_too_much,
            self._end_a_session,
            self._drain,
        ]
        while not self.scene.is_calm:
            lives, found = self.node.starts, ""
            act = self.rng.choice(acts)
            try:
                async with amqp_visit(self.node, self.name) as visit:
                    found = await act(visit)
            except EXPECTED as error:
                found = f"{act.__name__} ended with {error!r}" if is_peaceful(self.scene.plan) else ""
            if found and self.node.starts == lives and self.node.is_up:
                self.scene.record.blame(f"{self.name}: {found}")
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.put_rate) + AGAIN_S)

    def _topic(self) -> str:
        """A topic that nobody else uses."""
        self._count += 1
        return f"visit/{self.name}/{self._count}"

    async def _echo(self, visit: AmqpVisit) -> tuple[str, Any]:
        """A topic with a receiver that has credit, and a sender that may send."""
        topic = self._topic()
        receiver = visit.receiver(topic)
        await visit.news(lambda name, what: name == "PN_LINK_REMOTE_OPEN" and what.name == receiver.name)
        receiver.flow(CREDIT)
        sender = visit.sender(topic)
        await visit.credit(sender)
        return topic, sender

    # -- acts

    async def _open_bad_links(self, visit: AmqpVisit) -> str:
        """A link that can't be is refused with the condition that says why."""

        def coordinate(link: Any) -> None:
            link.target.type = link.target.COORDINATOR

        for expected, link in (
            (INVALID, visit.sender("a//b")),
            (INVALID, visit.receiver("a//b")),
            (DENIED, visit.sender("reknit/a")),
            ("amqp:not-implemented", visit.sender(None, coordinate)),
        ):
            if (found := await visit.condition(link)) != expected:
                return f"a link was closed with {found}, and not with {expected}"
        return ""

    async def _open_many_links(self, visit: AmqpVisit) -> str:
        """A connection has no more links than configured; the others go on."""
        topic, sender = await self._echo(visit)
        links = [visit.sender(topic) for _ in range(LINKS_MAX - 1)]
        found = await visit.condition(links[-1])
        delivery = await visit.send(sender, _encoded(b"still here"))
        is_right = found == FULL and delivery.remote_state.name == "ACCEPTED"
        return "" if is_right else f"the last of many links was closed with {found}"

    async def _send_every_body(self, visit: AmqpVisit) -> str:
        """A body of any type comes out as it went in."""
        _, sender = await self._echo(visit)
        for body in _bodies():
            state = (await visit.send(sender, _encoded(body))).remote_state.name
            found = _body_of(await visit.message())
            if state != "ACCEPTED" or found != body:
                return f"a message with {body!r} was {state}, and came as {found!r}"
        return ""

    async def _send_settled(self, visit: AmqpVisit) -> str:
        """A message that its sender does not ask about comes, too."""
        _, sender = await self._echo(visit)
        await visit.send(sender, _encoded(b"quietly"), is_settled=True)
        found = _body_of(await visit.message())
        return "" if found == b"quietly" else f"a settled message came as {found!r}"

    async def _name_topics(self, visit: AmqpVisit) -> str:
        """A message that names its topic goes there, or is rejected with the reason."""
        sender = visit.sender(None)
        await visit.credit(sender)
        for to, expected in (
            *((self._topic(), "") for _ in range(RELAY_TOPICS_MAX + 1)),
            ("a//b", INVALID),
            ("reknit/a", DENIED),
        ):
            delivery = await visit.send(sender, _encoded(b"there", to))
            condition = delivery.remote.condition
            found = condition.name if condition else ""
            is_right = found == expected and delivery.remote_state.name == (
                "REJECTED" if expected else "ACCEPTED"
            )
            if not is_right:
                return f"a message to {to} was {delivery.remote_state.name} with {found}"
        return ""

    async def _send_too_much(self, visit: AmqpVisit) -> str:
        """A message that is too long ends its link, and no other."""
        _, sender = await self._echo(visit)
        other = visit.sender(self._topic())
        await visit.credit(other)
        other.delivery("long")
        other.stream(_encoded(b"." * (MESSAGE_BYTES_MAX + 1)))
        other.advance()
        visit.turn()
        found = await visit.condition(other)
        state = (await visit.send(sender, _encoded(b"short"))).remote_state.name
        return (
            ""
            if (found, state) == (LONG, "ACCEPTED")
            else f"its link was closed with {found}, another was {state}"
        )

    async def _end_a_session(self, visit: AmqpVisit) -> str:
        """A session that ends takes its links along; another one of the connection goes on."""
        first = visit.session
        topic, _ = await self._echo(visit)
        visit.session = first.connection.session()
        visit.session.open()
        sender = visit.sender(topic)
        await visit.credit(sender)
        first.close()
        state = (await visit.send(sender, _encoded(b"alone"))).remote_state.name
        return "" if state == "ACCEPTED" else f"a message on the other session was {state}"

    async def _drain(self, visit: AmqpVisit) -> str:
        """A receiver that drains gets its credit back when there is nothing to send."""
        topic, sender = await self._echo(visit)
        await visit.send(sender, _encoded(b"one"))
        link = visit.receiver(topic)
        link.drain(CREDIT)
        visit.turn()
        await visit.news(
            lambda name, what: name == "PN_LINK_FLOW" and what.name == link.name and not what.credit
        )
        return "" if _body_of(await visit.message()) == b"one" else "another message came than was sent"


def _bodies() -> list[Any]:
    """A body of each kind."""
    import proton

    return [
        b"bytes",
        "a text",
        b"." * 1_000,
        "é" * 1_000,
        17,
        None,
        True,
        [1, "two", None],
        {"one": 1, "list": [1.5, True]},
        UUID(int=7),
        proton.timestamp(1_700_000_000_000),
    ]


def _encoded(body: Any, to: str = "") -> bytes:
    from proton import Message

    message = Message(body=body, inferred=isinstance(body, bytes))
    if to:
        message.address = to
    return bytes(message.encode())


def _body_of(data: bytes) -> Any:
    from proton import Message

    message = Message()
    message.decode(data)
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body
