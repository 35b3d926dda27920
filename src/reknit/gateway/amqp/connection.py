"""One client's connection: SASL first, then proton's engine, between a socket and the links."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from reknit.errors import InvalidTopic
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.conditions import DETACH_FORCED, FORCED, condition_of
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.engine import Engine
from reknit.gateway.amqp.incoming import RESEND_RELEASED, Incoming
from reknit.gateway.amqp.outgoing import Outgoing
from reknit.gateway.amqp.sasl import ANONYMOUS, NotSasl, SaslServer, State
from reknit.outcome import Code
from reknit.topic import Pattern, check_topic

if TYPE_CHECKING:
    from reknit.gateway.amqp.server import AmqpServer

log = logging.getLogger("reknit.amqp")

LINGER_S = 0.5
"""How long a client may take to close its side after we closed ours."""
REPLIES = "reply"
"""Where addresses are made for clients that ask for one."""
OFFERED = ("ANONYMOUS-RELAY",)

Link = Incoming | Outgoing


class AmqpConnection(asyncio.Protocol):
    """Between a socket and the links of one client. What happens in one turn of the loop is answered once."""

    def __init__(self, server: AmqpServer) -> None:
        self.server = server
        self.settings = server.settings
        self.message_bytes_max = server.message_bytes_max
        self.user = ""
        self.is_stopping = False
        self._sasl: SaslServer | None = None
        self._engine: Engine | None = None
        self._links: dict[Handle, Link] = {}
        self._dirty: dict[Link, None] = {}
        self._held_bytes = 0
        self.assembly_bytes = 0
        """What is still arriving, on all links."""
        self._is_turn_due = self._is_blocked = self._is_closing = self._is_client_done = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = server.loop

    # -- the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self.settings.output_bytes_max)
        self._sasl = self.server.sasl(self._transport)
        self.server.connections[self] = None
        self.server.all_gone.clear()
        self._timer = self._loop.call_later(self.settings.hello_timeout_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._sasl is not None:
            data = self._greet(self._sasl, data)
        if data and self._engine is not None:
            self._engine.push(data)
            self._turn()

    def eof_received(self) -> bool:
        if self._engine is not None:
            self._engine.end_input()
            self._turn()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.gone(self)
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.close(is_closed=False)
        self._links.clear()
        self._dirty.clear()
        if self._engine is not None:
            self._engine.free()
            self._engine = None

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._turn()

    def _greet(self, sasl: SaslServer, data: bytes) -> bytes:
        """Find out who it is; gives what belongs to AMQP proper."""
        try:
            self._transport.write(sasl.feed(data))
        except NotSasl as error:
            log.warning("%s: %s", self._transport.get_extra_info("peername"), error)
            self._transport.close()
            return b""
        if sasl.state is State.FAILED:
            log.warning("%s is not let in", self._transport.get_extra_info("peername"))
            self._transport.close()
        if sasl.state is not State.DONE:
            return b""
        self.user, self._sasl = sasl.user, None
        settings = self.settings
        self._engine = Engine(
            self, self.server.name, settings.frame_bytes_max, settings.sessions_max, settings.idle_s
        )
        return sasl.rest

    # -- turns

    def dirty(self, link: Link) -> None:
        """A link has something to do when the turn ends."""
        self._dirty[link] = None

    def wake(self) -> None:
        """Come round soon: there is something to answer."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Let links do what is due, then send what that led to."""
        self._is_turn_due = False
        try:
            self._work()
        except Exception:
            log.exception("a fault of the gateway's own costs %s its connection, and nobody else", self.user)
            self._transport.abort()

    def _work(self) -> None:
        engine = self._engine
        for link in self._dirty:
            link.flush()
        if engine is None or self._is_blocked:
            return
        dirty, self._dirty = self._dirty, {}
        for link in dirty:
            link.take()
        if self._send(engine) and self._dirty:  # more fits now
            self.wake()
        if engine.is_ended:
            self._linger()

    def _send(self, engine: Engine) -> bool:
        data = engine.output()
        if data:
            self._transport.write(data)
        return bool(data)

    def _tick(self) -> None:
        """Heartbeats: ours are sent, the client's are waited for."""
        engine = self._engine
        if engine is not None:
            now = self._loop.time()
            due = engine.tick(now)
            self._timer = self._loop.call_later(max(due - now, 0.01), self._tick) if due else None
            self.wake()

    def _linger(self) -> None:
        """We have said our last: part when the client has, too. Who closes first may not be heard."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_later(LINGER_S, self._transport.abort)
        if self._is_client_done:
            self._transport.close()

    # -- room

    @property
    def intake_room(self) -> int:
        """How many bytes more may be taken from this client before it has outcomes."""
        return self.settings.intake_bytes_max - self._held_bytes

    def held(self, size: int) -> None:
        self._held_bytes += size

    def unheld(self, size: int) -> None:
        """Room again: links that had to wait go on."""
        was_full = self.intake_room <= 0
        self._held_bytes -= size
        self.server.settled.set()
        if was_full and self.intake_room > 0:
            self._dirty.update(dict.fromkeys(self._links.values()))
            self.wake()

    def output_room(self, link: Handle) -> int:
        """How many bytes more may wait to be sent on the link's session."""
        return self.settings.output_bytes_max - deliveries.waiting_bytes(link)

    @property
    def links(self) -> list[Link]:
        """Those that are open."""
        return [link for link in self._links.values() if not link.is_gone]

    @property
    def unsettled(self) -> int:
        """Messages of this client that have no outcome yet."""
        return sum(link.unsettled for link in self._links.values() if isinstance(link, Incoming))

    # -- the engine's side

    def opened(self) -> None:
        assert self._engine is not None
        self._engine.open(self.settings.session_bytes_max, OFFERED)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0, self._tick)
        if len(self.server.connections) > self.settings.connections_max:
            text = "the node has as many AMQP connections as it may (amqp.connections_max)"
            self._engine.close(condition_of(Code.RESOURCE_EXHAUSTED), text)

    def link_opened(self, link: Handle) -> None:
        problem = self._attach(link)
        if problem is not None:
            code, text = problem
            deliveries.refuse_link(link, condition_of(code), text)

    def _attach(self, link: Handle) -> tuple[Code, str] | None:
        """Make a link of what the client asks for, or say why not."""
        if self.is_stopping:
            return Code.UNAVAILABLE, "the node stops"
        if len(self._links) >= self.settings.links_max:
            return Code.RESOURCE_EXHAUSTED, "the connection has as many links as it may (amqp.links_max)"
        if deliveries.is_coordinator(link):
            return Code.UNIMPLEMENTED, "there are no transactions here"
        try:
            return self._attach_outgoing(link) if deliveries.is_sender(link) else self._attach_incoming(link)
        except InvalidTopic as error:
            return Code.INVALID_ARGUMENT, str(error)

    def _attach_incoming(self, link: Handle) -> tuple[Code, str] | None:
        target = deliveries.target(link)
        topic = self._reply_address() if target.is_dynamic else target.address
        if topic:
            check_topic(topic)
            if not self.may_write(topic):
                return Code.PERMISSION_DENIED, f"{self.user} may not publish on {topic}"
        resend_released = RESEND_RELEASED in target.capabilities
        made = Incoming(self, link, topic, resend_released, target.is_dynamic)
        self._links[link] = made
        bytes_max = self.server.stream_bytes_max(topic) if topic else self.message_bytes_max
        deliveries.open_link(link, bytes_max, topic if target.is_dynamic else "")
        made.give_credit()
        return None

    def _attach_outgoing(self, link: Handle) -> tuple[Code, str] | None:
        source = deliveries.source(link)
        pattern = Pattern(self._reply_address() if source.is_dynamic else source.address)
        if not source.is_dynamic and not self.may_read(pattern):
            return Code.PERMISSION_DENIED, f"{self.user} may not read {pattern}"
        name = ""
        if source.is_durable and not source.is_dynamic:
            name = self._durable_name(link)
        self._links[link] = Outgoing(self, link, pattern, name, source.is_dynamic)
        return None

    def _durable_name(self, link: Handle) -> str:
        """Who a durable subscriber is: no user can take the name of another's."""
        assert self._engine is not None
        who = () if self.user == ANONYMOUS else (self.user,)
        parts = (*who, self._engine.remote_container, deliveries.link_name(link))
        return "/".join(("amqp", *(quote(part, safe="") for part in parts)))

    def _reply_address(self) -> str:
        address = f"{REPLIES}/{secrets.token_hex(12)}"
        self.server.replies[address] = None
        return address

    def attach(self, link: Outgoing) -> None:
        """The link's subscription stands."""
        deliveries.open_link(link.handle, 0, link.address if link.is_dynamic else "")
        link.flowed()
        self.wake()

    def flowed(self, link: Handle) -> None:
        found = self._links.get(link)
        if isinstance(found, Outgoing):
            found.flowed()
            self._dirty[found] = None

    def delivered(self, link: Handle, delivery: Handle) -> bool:
        found = self._links.get(link)
        if isinstance(found, Outgoing):
            found.delivered(delivery)
            return False
        if found is not None:
            self._dirty[found] = None
        return found is not None

    def link_closed(self, link: Handle, is_closed: bool) -> None:
        found = self._links.pop(link, None)
        if found is not None:
            self._dirty.pop(found, None)
            if isinstance(found, Incoming):
                found.take()  # what came before it closed was sent in good faith
            found.close(is_closed)
        deliveries.close_link(link, is_detach=not is_closed)
        deliveries.free_link(link)

    def session_closed(self, links: list[Handle]) -> None:
        for link in links:
            found = self._links.pop(link, None)
            if found is not None:
                self._dirty.pop(found, None)
                found.close(is_closed=False)

    def closed(self, condition: str, text: str) -> None:
        self._is_client_done = True
        if condition:
            log.info("%s closed its connection: %s: %s", self.user, condition, text)
        for link in list(self._links.values()):
            link.close(is_closed=False)
        self._links.clear()
        self._dirty.clear()
        if self._engine is not None:
            self._engine.close()
        self.wake()

    # -- rights

    def may_write(self, topic: str) -> bool:
        """Whether this client may publish there. Whoever was given an address for replies may be replied to."""
        return topic in self.server.replies or self.server.rules.may_write(self.user, topic)

    def may_read(self, pattern: Pattern) -> bool:
        """Whether this client may read all of it."""
        allowed = self.server.rules.readable(self.user)
        return allowed is None or any(one.includes(pattern) for one in allowed)

    # -- stopping

    def stop(self) -> None:
        """Take no more; links end when their messages have outcomes, or when time is up."""
        self.is_stopping = True

    def abort(self) -> None:
        """Part at once."""
        self._transport.abort()

    def end(self, text: str) -> None:
        """Close every link and the connection, and say why."""
        engine = self._engine
        if engine is None:
            self._transport.abort()
            return
        for handle, link in self._links.items():
            link.close(is_closed=False)
            is_attached = isinstance(link, Incoming) or link.is_ready
            (deliveries.close_link if is_attached else deliveries.refuse_link)(handle, DETACH_FORCED, text)
        engine.close(FORCED, text)
        self._is_blocked = False
        self._turn()
