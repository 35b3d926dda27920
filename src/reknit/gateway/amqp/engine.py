"""Proton's engine for one connection: bytes in, events of the connection and its links out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import cproton
from cproton_ffi import ffi, lib

from reknit.gateway.amqp.codec.attach import AttachScanner, DefaultOutcome, with_defaults
from reknit.gateway.amqp.codec.windows import SessionWindows
from reknit.gateway.amqp.deliveries import Handle, condition, link_name, put_symbols, set_condition, text_of

FRAME_BYTES: Final = 16 << 10
"""A frame is taken to hold no more: a client that takes longer ones has more room than that."""
TRANSFER_BYTES: Final = 64
"""What the header of a frame takes, about."""


class ConnectionListener(Protocol):
    """Follows the connection."""

    def opened(self) -> None:
        """The client opened the connection."""

    def closed(self, condition: str, text: str) -> None:
        """The client closed the connection, or broke the protocol. Nothing more will arrive."""


class LinkListener(Protocol):
    """Follows the links."""

    def link_opened(self, link: Handle) -> None:
        """The client attached a link."""

    def link_closed(self, link: Handle, is_closed: bool) -> None:
        """The client closed a link, or only detached it."""

    def flowed(self, link: Handle) -> None:
        """A link's credit changed."""

    def delivered(self, link: Handle, delivery: Handle) -> bool:
        """A delivery changed. Returns True if more of it arrived, False if the client said something about it."""

    def session_closed(self, links: list[Handle]) -> None:
        """A session ended with its links."""


class ProtonEngine:
    """The server's side of one connection."""

    def __init__(
        self,
        connection: ConnectionListener,
        links: LinkListener,
        *,
        container: str,
        frame_bytes_max: int,
        sessions_max: int,
        idle_s: float,
    ) -> None:
        self._listener = connection
        self._links = links
        self._transport = lib.pn_transport()
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, frame_bytes_max)
        lib.pn_transport_set_channel_max(self._transport, sessions_max - 1)
        lib.pn_transport_set_idle_timeout(self._transport, int(idle_s * 1000))
        self._connection = lib.pn_connection()
        cproton.pn_connection_set_container(self._connection, container)
        self._collector = lib.pn_collector()
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)
        self._session_bytes_max = 1 << 20
        self._windows = SessionWindows()
        self._attaches = AttachScanner(self._windows.heard)
        self._defaults: dict[str, DefaultOutcome] = {}
        """The default outcomes of receivers that the client attached and we did not yet."""
        self._is_done = False

    # -- bytes

    def push(self, data: bytes) -> None:
        """Process bytes from the client, and tell the listeners what happened."""
        self._defaults.update(self._attaches.feed(data))
        at, size = 0, len(data)
        source = ffi.from_buffer(data)
        while at < size and not self._is_done:
            room = lib.pn_transport_capacity(self._transport)
            if room < 0:
                break
            taken = lib.pn_transport_push(self._transport, source + at, min(room, size - at))
            if taken <= 0:
                break
            at += taken
            self._dispatch()
        self._dispatch()

    def output(self) -> bytes:
        """The bytes to send now. They count as sent."""
        parts: list[bytearray] = []
        transport = self._transport
        while not self._is_done and (size := lib.pn_transport_pending(transport)) > 0:
            chunk = bytearray(size)
            lib.pn_transport_peek(transport, ffi.from_buffer(chunk), size)
            lib.pn_transport_pop(transport, size)
            parts.append(chunk)
        data = b"".join(parts)
        if self._windows:
            self._windows.sent(data)
        return with_defaults(data, self._take_default) if self._defaults else data

    def stream_room(self, link: Handle) -> int | None:
        """How many more bytes of a stream may go to a link, so that the others of its session are not held up."""
        frames = self._windows.stream_frames(link_name(link)) if self._windows else None
        if frames is None:
            return None
        frame_bytes = lib.pn_transport_get_remote_max_frame(self._transport) or FRAME_BYTES
        return frames * (min(frame_bytes, FRAME_BYTES) - TRANSFER_BYTES)

    def default_outcome(self, link_name: str) -> DefaultOutcome | None:
        """What the client wants to hold for messages on this link that it settles without an outcome."""
        return self._defaults.get(link_name)

    def _take_default(self, link_name: str) -> DefaultOutcome | None:
        return self._defaults.pop(link_name, None)

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will be sent."""
        return self._is_done or lib.pn_transport_pending(self._transport) < 0

    def tick(self, now: float) -> float:
        """Send heartbeats, or notice that none came. Returns when to call it again, 0 for never."""
        due = float(lib.pn_transport_tick(self._transport, int(now * 1000))) / 1000
        self._dispatch()
        return due

    def end_input(self) -> None:
        """The client's side of the connection is closed."""
        if not self._is_done:
            lib.pn_transport_close_tail(self._transport)
            self._dispatch()

    def free(self) -> None:
        """Free everything. All handles become invalid."""
        if not self._is_done:
            self._is_done = True
            lib.pn_transport_unbind(self._transport)
            lib.pn_connection_collect(self._connection, ffi.NULL)
            lib.pn_collector_free(self._collector)
            lib.pn_connection_release(self._connection)
            lib.pn_decref(self._connection)
            lib.pn_decref(self._transport)

    # -- proton's events

    def _dispatch(self) -> None:
        collector, delivered = self._collector, self._links.delivered
        peek, pop, type_of, context, cast, link_of = (
            lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type, lib.pn_event_context,
            lib.pn_cast_pn_delivery, lib.pn_delivery_link,
        )  # fmt: skip
        deliveries = lib.PN_DELIVERY
        arriving: Handle = None
        while not self._is_done and (event := peek(collector)):
            kind = type_of(event)
            if kind == deliveries:
                delivery = cast(context(event))
                link = link_of(delivery)
                if link != arriving:  # the listener needs to know only once that something arrives on a link
                    arriving = link if delivered(link, delivery) else None
            else:
                arriving = None
                self._dispatch_other(kind, event)
            if not self._is_done:
                pop(collector)

    def _dispatch_other(self, kind: int, event: Any) -> None:
        links, listener = self._links, self._listener
        if kind == lib.PN_LINK_FLOW:
            links.flowed(lib.pn_event_link(event))
        elif kind == lib.PN_LINK_REMOTE_OPEN:
            links.link_opened(lib.pn_event_link(event))
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            links.link_closed(lib.pn_event_link(event), kind == lib.PN_LINK_REMOTE_CLOSE)
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            session = lib.pn_event_session(event)
            lib.pn_session_set_incoming_capacity(session, self._session_bytes_max)
            lib.pn_session_open(session)
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            session = lib.pn_event_session(event)
            links.session_closed(list(self._links_of(session)))
            lib.pn_session_close(session)
            lib.pn_session_free(session)
        elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
            listener.opened()
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            listener.closed(*condition(lib.pn_connection_remote_condition(self._connection)))
        elif kind == lib.PN_TRANSPORT_ERROR:
            listener.closed(*condition(lib.pn_transport_condition(self._transport)))
        elif kind == lib.PN_TRANSPORT_TAIL_CLOSED:
            listener.closed("", "")

    def _links_of(self, session: Handle) -> Iterator[Handle]:
        link = lib.pn_link_head(self._connection, 0)
        while link:
            if lib.pn_link_session(link) == session:
                yield link
            link = lib.pn_link_next(link, 0)

    # -- the connection

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of all sessions wait to be sent."""
        total, session = 0, lib.pn_session_head(self._connection, 0)
        while session != ffi.NULL:
            total += int(lib.pn_session_outgoing_bytes(session))
            session = lib.pn_session_next(session, 0)
        return total

    @property
    def remote_container(self) -> str:
        return text_of(lib.pn_connection_remote_container(self._connection))

    def open(self, session_bytes_max: int, capabilities: tuple[str, ...] = ()) -> None:
        """Open our side."""
        self._session_bytes_max = session_bytes_max
        put_symbols(lib.pn_connection_offered_capabilities(self._connection), capabilities)
        lib.pn_connection_open(self._connection)

    def close(self, name: str = "", text: str = "") -> None:
        """Close our side, with a reason."""
        if not self._is_done:
            set_condition(lib.pn_connection_condition(self._connection), name, text)
            lib.pn_connection_close(self._connection)
