"""What a client's side of a tunnel is told, and what it does: the inputs and effects of `TunnelClient`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class TunnelState(Enum):
    """The state of a tunnel. An application can show the last four."""

    CLOSED = "closed"
    OPENING = "opening"
    WAITING = "waiting"
    """It could not be opened yet; further attempts follow."""
    LIVE = "live"
    RECOVERING = "recovering"
    """It was cut off, and tries to resume."""
    RECOVERED = "recovered"
    LOST = "lost"
    """It can't resume: an error was signalled, and nothing more comes."""


class StartTunnel(msgspec.Struct, frozen=True):
    """Open the tunnel. With a checkpoint of an earlier program, resume from there."""

    checkpoint: str = ""


class StatusReceived(msgspec.Struct, frozen=True):
    """The first event on a connection: its status."""

    elements: Mapping[str, bytes]


class ElementsReceived(msgspec.Struct, frozen=True):
    """A later event on a connection."""

    elements: Mapping[str, bytes]


class BytesHeard(msgspec.Struct, frozen=True):
    """Bytes arrived, perhaps only a heartbeat: the connection works."""


class ReadingResumed(msgspec.Struct, frozen=True):
    """The application took what had come, and the connection is read again. Until then silence said nothing."""


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection was lost, or could not be opened."""

    why: str


class AnswerRefused(msgspec.Struct, frozen=True):
    """The answer is none of a tunnel, and has no status event: of a proxy, a login page, or a server without room."""

    code: int
    why: str
    """The address, and what came."""
    retry_after_s: float = 0.0


class StopTunnel(msgspec.Struct, frozen=True):
    """The application closes the tunnel."""


class OpenConnection(msgspec.Struct, frozen=True):
    """Open a connection, with these further parameters for the route."""

    parameters: dict[str, str]


class CloseConnection(msgspec.Struct, frozen=True):
    """Close the connection, or stop opening it: nothing came for too long."""


class DeliverElements(msgspec.Struct, frozen=True):
    """Deliver an event. It has not been delivered before, as far as that can be known."""

    elements: Mapping[str, bytes]


class SignalError(msgspec.Struct, frozen=True):
    """The one error: why no stateful reconnect is possible. Nothing follows it."""

    why: str


class StateChanged(msgspec.Struct, frozen=True):
    """The state changed."""

    state: TunnelState


Input = (
    StartTunnel
    | StatusReceived
    | ElementsReceived
    | BytesHeard
    | ReadingResumed
    | ConnectionLost
    | AnswerRefused
    | StopTunnel
)
Effect = OpenConnection | CloseConnection | DeliverElements | SignalError | StateChanged
