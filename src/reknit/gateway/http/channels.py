"""Several tunnels on one WebSocket: a page opens and closes them while the connection stays.

    {"open": "what/**", "channel": 7, "from": CHECKPOINT, "credit": 1048576}     ── opens a tunnel
    {"close": 7}                                                                 ── closes it
    {"taken": 65536, "channel": 7}                                               ── the answer to a mark

The node says `{"type": "channel", "channel": 7}` before what is on another channel than what came before. So the bytes
of an event stay the same for everybody. A channel that the node closes ends with `{"type": "closed", "channel": 7,
"why": …}`, with a `code` if another attempt makes no sense.

Credit is how many bytes may be on their way to the page. After at most a quarter of it the node sends a mark,
`{"type": "mark", "channel": 7, "bytes": 65536}`, and the client sends the number back when it has dealt with what came
before. A tunnel without credit left is blocked, as one whose socket is full: what is beyond stays in the journal.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from reknit.gateway.access import Access
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.formats import TunnelFormat
from reknit.gateway.http.groups import TunnelConnection, TunnelGroup
from reknit.gateway.http.patterns import PatternOpenings, PatternRefused
from reknit.gateway.http.scopes import PatternScope
from reknit.gateway.http.websocket import ClientMessage
from reknit.gateway.http.websocket_formats import message
from reknit.protocol.tunnel.server import TunnelBlocked, TunnelClosed, TunnelOpened, TunnelServer

ONLY: Final = 0
"""The channel of the topic in the address. It ends with the connection."""
CHANNEL_MAX: Final = 1 << 53
CREDIT_MAX: Final = 1 << 53
"""Numbers in JSON may be longer than a float can be, and so than any sum of bytes."""


class ChannelServices(Protocol):
    """The parts of a server that channels use."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def tunnels(self) -> TunnelServer: ...
    @property
    def feed(self) -> TunnelFeed: ...
    @property
    def quotas(self) -> ClientQuotas: ...


class WebSocketConnection(Protocol):
    """The connection below."""

    address: str

    def write(self, data: bytes) -> None:
        """Send."""

    def end(self, why: str) -> None:
        """Send the reason, and close."""

    def awaits_channel(self, is_so: bool) -> None:
        """Whether no channel is open: such a connection is not kept for long."""


class Channel(TunnelConnection):
    """One tunnel."""

    __slots__ = ("_channels", "address", "credit", "group", "is_blocked", "number", "sent", "unmarked")

    def __init__(self, channels: Channels, number: int, address: str, credit: int) -> None:
        self._channels = channels
        self.number = number
        self.address = address
        self.credit = credit
        """How many bytes may be on their way; 0 for no limit."""
        self.sent = 0
        """Bytes that the client has not taken."""
        self.unmarked = 0
        """Bytes since the last mark."""
        self.is_blocked = False
        self.group: TunnelGroup | None = None

    @property
    def is_starved(self) -> bool:
        return bool(self.credit) and self.sent >= self.credit

    def write(self, data: bytes, size: int = 0) -> None:
        self._channels.write(self, data, size)

    def end(self, why: str) -> None:
        self._channels.end(self, why)


class Channels:
    """The channels of one connection."""

    def __init__(
        self,
        connection: WebSocketConnection,
        services: ChannelServices,
        openings: PatternOpenings,
        user: str,
        format: TunnelFormat,
        channels_max: int,
    ) -> None:
        self._connection = connection
        self._services = services
        self._openings = openings
        self._user = user
        self._format = format
        self._channels_max = channels_max
        self._channels: dict[int, Channel] = {}
        self._written: int = ONLY
        """The channel that was written last."""
        self._is_full = False

    def __len__(self) -> int:
        return len(self._channels)

    # -- the client's side

    def receive(self, message: ClientMessage) -> str:
        """A message of the client. Returns why it makes no sense; empty if it does."""
        match message:
            case {"open": str(topic), "channel": int(number)} if ONLY < number < CHANNEL_MAX:
                return self._open(number, topic, message)
            case {"close": int(number)}:
                self._close(number)
            case {"taken": int(size)}:
                self._take(message.get("channel", ONLY), size)
            case _:
                return "messages are open, close and taken, each with a channel above 0"
        return ""

    def _open(self, number: int, topic: str, message: ClientMessage) -> str:
        place, credit = message.get("from", ""), message.get("credit", 0)
        if not isinstance(place, str) or not isinstance(credit, int) or not 0 <= credit < CREDIT_MAX:
            return "`from` is a checkpoint, and `credit` a number of bytes"
        if number in self._channels:
            return f"channel {number} is open already"
        try:
            scope = self._openings.scope(self._user, topic)
            if why := self.reserve():
                raise PatternRefused(429, why)
        except PatternRefused as error:
            self._tell(type="closed", channel=number, code=error.status, why=error.why)
        else:
            self.open(number, scope, place, credit)
        return ""

    def _close(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            self._forget(channel)

    def _take(self, number: object, size: int) -> None:
        channel = self._channels.get(number) if isinstance(number, int) else None
        if channel is not None:
            channel.sent = max(0, channel.sent - max(0, size))
            self._update(channel)

    # -- opening and closing

    def reserve(self) -> str:
        """Count one more subscription of the user. Returns why they may not have it."""
        if len(self._channels) >= self._channels_max:
            return f"a connection has at most {self._channels_max} channels (http.channels_max)"
        return self._services.quotas.subscribe(self._user)

    def open(self, number: int, scope: PatternScope, checkpoint: str, credit: int) -> None:
        """Open a tunnel for which a place was reserved."""
        services = self._services
        channel = self._channels[number] = Channel(self, number, self._connection.address, credit)
        self._connection.awaits_channel(False)
        opening = self._openings.opening(scope, checkpoint)
        self._send(channel, self._format.status(opening.elements, opening.why))
        opened = TunnelOpened("", channel.address, opening.place)
        channel.group = services.feed.open(channel, self._format, scope, True, opened)
        if channel.group is not None:
            self._update(channel)

    def end(self, channel: Channel, why: str, **fields: Any) -> None:
        """The node closes a channel."""
        if channel.number == ONLY:
            self._connection.end(why)
        elif self._forget(channel):
            self._tell(type="closed", channel=channel.number, why=why, **fields)
            if self._is_full and not self._channels:
                self._connection.end(why)  # it would not be read

    def close(self) -> None:
        """The connection is gone."""
        for channel in list(self._channels.values()):
            self._forget(channel)

    def _forget(self, channel: Channel) -> bool:
        if self._channels.pop(channel.number, None) is None:
            return False
        services = self._services
        services.tunnels.receive(TunnelClosed(), channel, 0.0)
        services.quotas.unsubscribe(self._user)
        if channel.group is not None:
            services.feed.release(channel.group)
        if not self._channels:
            self._connection.awaits_channel(True)
        return True

    def review(self, access: Access) -> None:
        """The rules have changed: end the channels that would carry other events now."""
        readable = access.readable(self._user)
        for channel in list(self._channels.values()):
            if channel.group is not None and not channel.group.scope.is_same(readable):
                text = f"the rules for {self._user} have changed; reconnect for what it may read now"
                channel.end(f"PERMISSION_DENIED: {text}")

    # -- pace

    def write(self, channel: Channel, data: bytes, size: int) -> None:
        """Send what a group gets. Credit counts what the page unpacks."""
        self._send(channel, data)
        if channel.credit:
            channel.sent += size
            channel.unmarked += size
            if channel.unmarked >= channel.credit / 4 or channel.is_starved:
                self._tell(type="mark", channel=channel.number, bytes=channel.unmarked)
                channel.unmarked = 0
            self._update(channel)

    def block(self, is_full: bool) -> None:
        """The socket is full, or has room again."""
        self._is_full = is_full
        for channel in list(self._channels.values()):
            self._update(channel)
        self._services.feed.perform()

    def _update(self, channel: Channel) -> None:
        """Tell the machine if a channel is blocked now, or is no longer."""
        is_blocked = self._is_full or channel.is_starved
        if is_blocked != channel.is_blocked:
            channel.is_blocked = is_blocked
            services = self._services
            services.tunnels.receive(TunnelBlocked(is_blocked), channel, services.loop.time())
            if not is_blocked:
                services.feed.perform()

    def _send(self, channel: Channel, data: bytes) -> None:
        if self._written != channel.number:
            self._written = channel.number
            self._tell(type="channel", channel=channel.number)
        self._connection.write(data)

    def _tell(self, **fields: Any) -> None:
        self._connection.write(message(**fields))
