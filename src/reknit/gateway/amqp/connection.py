"""One client's connection: SASL first, then proton's engine, between the socket and the links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from reknit.config import AmqpSettings
from reknit.gateway.access import Access
from reknit.gateway.amqp.codec.attach import DefaultOutcome
from reknit.gateway.amqp.codec.conditions import FORCED, condition_of
from reknit.gateway.amqp.connections import AmqpConnections
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.engine import ProtonEngine
from reknit.gateway.amqp.links.intake import ClientIntake
from reknit.gateway.amqp.links.link_table import Link, LinkTable
from reknit.gateway.amqp.links.outgoing import AmqpOutgoingLink
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.gateway.amqp.links.rights import ClientRights
from reknit.gateway.amqp.links.services import DeliveryCounts, LinkServices
from reknit.gateway.amqp.links.turns import LinkTurns
from reknit.gateway.amqp.node_client import NodeClient
from reknit.gateway.amqp.sasl import AMQP_HEADER, AmqpHeader, NotAmqp, NotSasl, SaslServer, SaslState
from reknit.gateway.amqp.security import AmqpSecurity
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.publish_pace import PublishPace
from reknit.outcome import Code
from reknit.trust.attempts import FailedAttempts
from reknit.trust.audit import Audit
from reknit.trust.connection_counts import ConnectionCounts
from reknit.trust.identities import NOBODY, Identity
from reknit.trust.logins import Logins
from reknit.trust.refusals import Refusals

log = logging.getLogger("reknit.amqp")

LINGER_S = 0.5
"""How long a client may take to close its side after we closed ours."""
EARLY_BYTES_MAX = 16 << 10
"""A client that has to wait sends no more than this; SASL is shorter."""
LINKS_SHOWN_MAX = 10
CAPABILITIES = ("ANONYMOUS-RELAY",)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpServices:
    """The services that all connections of a server share."""

    name: str
    settings: AmqpSettings
    message_bytes_max: int
    loop: asyncio.AbstractEventLoop
    node: NodeClient
    security: AmqpSecurity
    access: Access
    logins: Logins
    audit: Audit
    refusals: Refusals
    pace: PublishPace
    quota: ConnectionCounts
    quotas: ClientQuotas
    attempts: FailedAttempts
    counts: DeliveryCounts
    replies: ReplyAddresses
    connections: AmqpConnections[AmqpConnection]


class AmqpConnection(asyncio.Protocol):
    """Between a socket and the links of one client. Links work once per turn of the event loop."""

    def __init__(self, services: AmqpServices) -> None:
        self._services = services
        self._loop = services.loop
        self._turns = LinkTurns(services.loop, self._turn)
        self._intake = ClientIntake(
            services.settings,
            on_room=self._on_room,
            on_settled=services.connections.settled,
            pace=services.pace,
            loop=services.loop,
        )
        self._proof = NOBODY
        self._is_counted = False
        """Whether it counts as a connection of its identity."""
        self._sasl: SaslServer | None = None
        self._header = AmqpHeader()
        self._engine: ProtonEngine | None = None
        self._links: LinkTable | None = None
        """None until the client is known."""
        self._address = ""
        self._opened_at = 0.0
        self._early: bytes | None = None
        """What the client sent before it is looked at, if it has to wait."""
        self._is_blocked = self._is_closing = self._is_client_done = False
        self._timer: asyncio.TimerHandle | None = None

    # -- the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        services = self._services
        # uvloop's transports are not subclasses of asyncio.Transport
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(services.settings.output_bytes_max)
        self._sasl = services.security.sasl(self._transport)
        peer = self._transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else "local"
        self._opened_at = self._loop.time()
        self._slow_down(services.attempts.before(self._address))
        services.connections.opened(self)
        self._timer = self._loop.call_later(services.settings.hello_timeout_s, self._transport.abort)

    def _slow_down(self, wait_s: float | None) -> None:
        """A client at an address where others failed to authenticate waits before it is looked at."""
        if wait_s is None:
            self._transport.abort()
        elif wait_s:
            self._early = b""
            self._loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        self._services.attempts.answered(self._address)
        data, self._early = self._early or b"", None
        if not self._transport.is_closing():
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            if len(self._early) > EARLY_BYTES_MAX:
                self._transport.abort()
            return
        if self._sasl is not None:
            data = self._authenticate(self._sasl, data)
        if data and not self._header.is_complete:
            data = self._after_header(data)
        engine = self._engine
        if data and engine is not None:
            self._contain(lambda: engine.push(data))
            self._turn()

    def _after_header(self, data: bytes) -> bytes:
        """The bytes of AMQP, header included, once it is complete."""
        try:
            return self._header.feed(data)
        except NotAmqp as error:
            log.warning("closing the connection from %s: %s", self._address, error)
            self._transport.write(AMQP_HEADER)  # "the protocol header that is acceptable", before closing
            self._transport.close()
            return b""

    def eof_received(self) -> bool:
        if self._engine is not None:
            self._contain(self._engine.end_input)
            self._turn()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._services.connections.closed(self)
        self._services.logins.remove(self)
        if self._is_counted:
            self._services.quota.leave(self._proof.name)
        if self._timer is not None:
            self._timer.cancel()
        if self._links is not None:
            self._links.clear()
        if self._engine is not None:
            self._engine.free()
            self._engine = None

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._turn()

    def _authenticate(self, sasl: SaslServer, data: bytes) -> bytes:
        """Authenticate the client. Returns the bytes that belong to AMQP."""
        services = self._services
        try:
            answer = sasl.feed(data)
        except NotSasl as error:
            log.warning("closing the connection from %s: %s", self._address, error)
            self._transport.close()
            return b""
        if sasl.state is SaslState.FAILED:
            log.warning("%s failed to authenticate", self._transport.get_extra_info("peername"))
            services.audit.login(
                None, "amqp", self._address, f"SASL {sasl.mechanism} failed".replace("  ", " ")
            )
            services.attempts.count(self._address, "amqp")
        self._transport.write(answer)
        if sasl.state is SaslState.FAILED:
            self._transport.close()
        if sasl.state is not SaslState.DONE:
            return b""
        self._proof, self._sasl = sasl.identity, None
        services.audit.login(sasl.identity, "amqp", self._address)
        self._intake.identified(sasl.identity.name)
        self._is_counted = not (why := services.quota.enter(sasl.identity.name, self._address))
        self._begin(sasl.identity.name)
        if why:
            self.end(why, condition_of(Code.RESOURCE_EXHAUSTED))
        services.logins.add(self)
        return sasl.rest

    def _begin(self, user: str) -> None:
        """The client is known: AMQP begins."""
        services = self._services
        settings = services.settings
        link_services = LinkServices(
            settings=settings,
            message_bytes_max=services.message_bytes_max,
            node=services.node,
            counts=services.counts,
            replies=services.replies,
            rights=ClientRights(user, services.access, services.replies, services.refusals, self._address),
            quotas=services.quotas,
            intake=self._intake,
            turns=self._turns,
            session_room=self._stream_room,
        )
        self._links = LinkTable(link_services, self._remote_container, self._default_outcome)
        self._engine = ProtonEngine(
            self,
            self._links,
            container=services.name,
            frame_bytes_max=settings.frame_bytes_max,
            sessions_max=settings.sessions_max,
            idle_s=settings.idle_s,
        )

    def _remote_container(self) -> str:
        assert self._engine is not None
        return self._engine.remote_container

    def _stream_room(self, link: Handle) -> int | None:
        assert self._engine is not None
        return self._engine.stream_room(link)

    def _default_outcome(self, link_name: str) -> DefaultOutcome | None:
        assert self._engine is not None
        return self._engine.default_outcome(link_name)

    # -- turns

    def _turn(self) -> None:
        """Let links do what is due, then send the result."""
        self._turns.begin()
        self._contain(self._work)

    def _contain(self, work: Callable[[], None]) -> None:
        """An error of the gateway itself ends this connection, and no other."""
        try:
            work()
        except Exception:
            log.exception("an internal error of the gateway closes the connection of %s", self._proof)
            self._transport.abort()

    def _work(self) -> None:
        engine, turns = self._engine, self._turns
        turns.flush()
        if engine is None or self._is_blocked:
            return
        turns.work()
        if self._send(engine) and turns.has_work:  # more fits now
            turns.wake()
        if engine.is_ended:
            self._linger()

    def _send(self, engine: ProtonEngine) -> bool:
        data = engine.output()
        if data:
            self._transport.write(data)
        return bool(data)

    def _tick(self) -> None:
        """Send heartbeats, and check those of the client."""
        self._timer = None
        self._contain(self._beat)

    def _beat(self) -> None:
        engine = self._engine
        if engine is not None:
            now = self._loop.time()
            due = engine.tick(now)
            self._timer = self._loop.call_later(max(due - now, 0.01), self._tick) if due else None
            self._turns.wake()

    def _linger(self) -> None:
        """Our side is closed. Wait for the client's side: a reset could destroy our last bytes."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_later(LINGER_S, self._transport.abort)
        if self._is_client_done:
            self._transport.close()

    def _on_room(self) -> None:
        if self._links is not None:
            self._links.resume()

    @property
    def intake_room(self) -> int:
        """How many more bytes the client may send before its messages have outcomes."""
        return self._intake.room

    @property
    def links(self) -> list[Link]:
        """The links that are open."""
        return self._links.open if self._links is not None else []

    @property
    def unsettled(self) -> int:
        """Messages of this client without an outcome."""
        return self._links.unsettled if self._links is not None else 0

    @property
    def waiting_bytes(self) -> int:
        """What was sent to the client and not taken yet, and what it sent in part."""
        unsent = self._engine.waiting_bytes if self._engine is not None else 0
        early = len(self._early or b"")
        return self._transport.get_write_buffer_size() + unsent + early + self._intake.assembly_bytes

    @property
    def is_closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._transport.is_closing()

    # -- the engine's side

    def opened(self) -> None:
        """The client opened the connection."""
        assert self._engine is not None
        settings = self._services.settings
        self._engine.open(settings.session_bytes_max, CAPABILITIES)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0, self._tick)
        if len(self._services.connections) > settings.connections_max:
            text = "the node has too many AMQP connections (amqp.connections_max)"
            self._engine.close(condition_of(Code.RESOURCE_EXHAUSTED), text)

    def closed(self, condition: str, text: str) -> None:
        """The client closed the connection, or broke the protocol."""
        self._is_client_done = True
        if condition:
            log.info("%s closed its connection: %s: %s", self._proof, condition, text)
        if self._links is not None:
            self._links.clear()
        if self._engine is not None:
            self._engine.close()
        self._turns.wake()

    def describe(self) -> dict[str, Any]:
        """Who the client is, since when, and which links it has."""
        links = self.links
        ways = [("from" if isinstance(one, AmqpOutgoingLink) else "to", one.address) for one in links]
        more = len(links) - LINKS_SHOWN_MAX
        holds = [f"{way} {address or 'any address'}" for way, address in ways[:LINKS_SHOWN_MAX]]
        return {
            "name": self._engine.remote_container if self._engine is not None else "",
            "identity": self._proof.name,
            "address": self._address,
            "kind": f"{len(links)} link{'s' * (len(links) != 1)}",
            "since_s": round(self._loop.time() - self._opened_at, 1),
            "holds": ", ".join([*holds, *([f"and {more} more"] if more > 0 else [])]),
            "unsettled": self.unsettled,
            "unsent_bytes": self.waiting_bytes,
            "state": "does not read" if self._is_blocked else "open",
        }

    # -- identity and rules

    @property
    def proof(self) -> Identity:
        """Who the client is."""
        return self._proof

    def expel(self, why: str) -> None:
        """The client's proof was revoked, or has expired."""
        log.warning("closing the AMQP connection of %s: %s", self._proof, why)
        self.end(why, condition_of(Code.UNAUTHENTICATED))

    def review(self) -> None:
        """The rules have changed: close the links that they allow no longer."""
        if self._links is not None:
            self._links.review()
            self._turn()

    # -- stopping

    def stop(self) -> None:
        """Take no more messages."""
        self._intake.stop()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def end(self, text: str, condition: str = FORCED) -> None:
        """Close every link and the connection with a reason."""
        if self._engine is None or self._links is None:
            self._transport.abort()
            return
        self._links.end(text)
        self._engine.close(condition, text)
        self._is_blocked = False
        self._turn()
