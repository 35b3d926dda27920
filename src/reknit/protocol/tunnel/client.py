"""A client's side of a tunnel: it resumes after its connection was lost, or signals one error and ends.

    CLOSED     ── StartTunnel ──> OPENING, or RECOVERING with a checkpoint
    OPENING    ── StatusReceived ──> LIVE, or LOST;   ConnectionLost ──> WAITING
    WAITING    ── tick ──> OPENING
    RECOVERING ── StatusReceived ──> RECOVERED, or LOST;   ConnectionLost ──> RECOVERING, or LOST
    LIVE, RECOVERED ── ConnectionLost ──> RECOVERING, or LOST
    any        ── StopTunnel ──> CLOSED

Other inputs come late, from a connection that is gone, and are ignored; a second StartTunnel raises. The sentences
quoted below are the specification's (mod_pubsub, stateful reconnection).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Any, Final, assert_never

import msgspec

from reknit.errors import LocalError
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.tunnel.elements import CHECKPOINT, HASH, LOCATION, SCHEME, STATUS, TIMEOUT, seen_key
from reknit.protocol.tunnel.seen_events import ENTRIES_MAX, GRACE_S, SeenEvents

EVENT_HASH: Final = "kn_event_hash"
BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 5.0


class TunnelState(Enum):
    """The state of a tunnel. An application can show the last four."""

    CLOSED = "closed"
    OPENING = "opening"
    WAITING = "waiting"
    """It could not be opened yet; another attempt follows."""
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


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection was lost, or could not be opened."""

    why: str


class StopTunnel(msgspec.Struct, frozen=True):
    """The application closes the tunnel."""


class OpenConnection(msgspec.Struct, frozen=True):
    """Open a connection, with these further parameters for the route."""

    parameters: dict[str, str]


class DeliverElements(msgspec.Struct, frozen=True):
    """Deliver an event. It has not been delivered before, as far as that can be known."""

    elements: Mapping[str, bytes]


class SignalError(msgspec.Struct, frozen=True):
    """The one error: why no stateful reconnect is possible. Nothing follows it."""

    why: str


class StateChanged(msgspec.Struct, frozen=True):
    """The state changed."""

    state: TunnelState


Input = StartTunnel | StatusReceived | ElementsReceived | BytesHeard | ConnectionLost | StopTunnel
Effect = OpenConnection | DeliverElements | SignalError | StateChanged

TRANSITIONS: Final[dict[tuple[TunnelState, type[Any]], TunnelState]] = {
    (TunnelState.CLOSED, StartTunnel): TunnelState.OPENING,  # or RECOVERING, with a checkpoint
    (TunnelState.OPENING, StatusReceived): TunnelState.LIVE,  # or LOST
    (TunnelState.OPENING, ConnectionLost): TunnelState.WAITING,
    (TunnelState.RECOVERING, StatusReceived): TunnelState.RECOVERED,  # or LOST
    (
        TunnelState.RECOVERING,
        ConnectionLost,
    ): TunnelState.RECOVERING,  # or LOST, when the grace period is over
    (TunnelState.LIVE, ElementsReceived): TunnelState.LIVE,
    (TunnelState.LIVE, BytesHeard): TunnelState.LIVE,
    (
        TunnelState.LIVE,
        ConnectionLost,
    ): TunnelState.RECOVERING,  # or LOST, where no stateful reconnect is possible
    (TunnelState.RECOVERED, ElementsReceived): TunnelState.RECOVERED,
    (TunnelState.RECOVERED, BytesHeard): TunnelState.RECOVERED,
    (TunnelState.RECOVERED, ConnectionLost): TunnelState.RECOVERING,  # or LOST
    **{(state, StopTunnel): TunnelState.CLOSED for state in TunnelState},
}


class TunnelClient:
    """One tunnel.

    >>> client = TunnelClient(Random(1))
    >>> client.receive(StartTunnel(), "app", 0.0)
    >>> client.take_effects()
    [StateChanged(state=<TunnelState.OPENING: 'opening'>), OpenConnection(parameters={})]
    >>> elements = {"status": b"200 OK", "kn_journal_reconnect_scheme": b"kn_event_hash"}
    >>> client.receive(StatusReceived(elements), "server", 0.1)
    >>> client.receive(ConnectionLost("reset"), "server", 9.0)
    >>> client.tick(client.next_deadline())
    >>> client.take_effects()[-1]
    OpenConnection(parameters={'do_max_age': '60'})
    """

    def __init__(
        self,
        rng: Random,
        backoff_s_min: float = BACKOFF_S_MIN,
        backoff_s_max: float = BACKOFF_S_MAX,
        seen_max: int = ENTRIES_MAX,
    ) -> None:
        self.state = TunnelState.CLOSED
        self.scheme = ""
        self.grace_s = GRACE_S
        self.checkpoint = ""
        """The stored checkpoint: "Default to no saved checkpoint"."""
        self.seen = SeenEvents(GRACE_S, seen_max)
        self.repeats = 0
        """How many events came again and were ignored."""
        self._rng = rng
        self._backoff = (backoff_s_min, backoff_s_max)
        self._attempts = 0
        self._heard_at = 0.0
        self._due: float | None = None
        self._effects: list[Effect] = []

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from the application or from the connection."""
        state = TRANSITIONS.get((self.state, type(message)))
        if state is None:
            if isinstance(message, StartTunnel):
                raise LocalError(
                    f"a tunnel is started once: this one is {self.state.value}; open another one"
                )
            return
        match message:
            case StartTunnel(checkpoint=checkpoint):
                self._begin(checkpoint)
            case StatusReceived(elements=elements):
                self._status(elements, state, now)
            case ElementsReceived(elements=elements):
                self._event(elements, now)
            case BytesHeard():
                self._heard_at = now
            case ConnectionLost(why=why):
                self._cut(why, state, now)
            case StopTunnel():
                self._due = None
                self._become(state)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Try to connect again, if that is due."""
        if self._due is None or now < self._due:
            return
        self._due = None
        if self.state is TunnelState.WAITING:
            self._become(TunnelState.OPENING)
            self._effects.append(OpenConnection({}))
        elif why := self._impossible(now):
            self._lose(why)
        else:
            self._effects.append(OpenConnection(self._parameters()))

    def next_deadline(self) -> float | None:
        return self._due

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening

    def _begin(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._become(TunnelState.RECOVERING if checkpoint else TunnelState.OPENING)
        self._effects.append(OpenConnection(self._parameters() if checkpoint else {}))

    def _status(self, elements: Mapping[str, bytes], state: TunnelState, now: float) -> None:
        status = elements.get(STATUS, b"").decode("utf-8", "replace")
        if status.partition(" ")[0] != "200":
            # "no stateful reconnect is possible and you MUST signal an error to the app or user"
            self._lose(status or "the server gave no status")
            return
        self._attempts = 0
        self._heard_at = now
        self.scheme = elements.get(SCHEME, b"").decode("utf-8", "replace")
        self.grace_s = _seconds(elements.get(TIMEOUT))
        # an event that is replayed at the very end of the grace period still has to be recognised when it arrives
        self.seen.set_grace(2 * self.grace_s)
        self._note_checkpoint(elements)
        self._become(state)

    # -- events

    def _event(self, elements: Mapping[str, bytes], now: float) -> None:
        self._heard_at = now
        self._note_checkpoint(elements)
        if self.scheme == EVENT_HASH and HASH in elements:
            # "a missing kn_route_location is equivalent to an empty string here"
            location = elements.get(LOCATION, b"").decode("utf-8", "replace")
            if not self.seen.add(seen_key(location, elements[HASH].decode("ascii", "replace")), now):
                self.repeats += 1
                return  # "If the event is already in the cache, ignore it"
        self._effects.append(DeliverElements(elements))

    def _note_checkpoint(self, elements: Mapping[str, bytes]) -> None:
        """ "any event with a kn_route_checkpoint header sets the stored checkpoint" """
        if CHECKPOINT in elements:
            self.checkpoint = elements[CHECKPOINT].decode("utf-8", "replace")

    # -- resuming

    def _cut(self, why: str, state: TunnelState, now: float) -> None:
        if self.state is not TunnelState.OPENING and (impossible := self._impossible(now)):
            self._lose(f"{why}; {impossible}")
            return
        self._become(state)
        low, high = self._backoff
        self._due = now + self._rng.uniform(low / 2, min(high, low * 2.0 ** min(self._attempts, 30)))
        self._attempts += 1

    def _impossible(self, now: float) -> str:
        """Why no stateful reconnect is possible, or an empty text."""
        if self.scheme == EVENT_HASH:
            # the timeout is "how many seconds a stateful reconnect is theoretically possible"
            away_s = now - self._heard_at
            if away_s > self.grace_s:
                return f"cut off for {away_s:.0f} s, over the server's grace period of {self.grace_s:.0f} s"
        elif not self.checkpoint:
            # "If you haven't seen a kn_route_checkpoint header yet, no stateful reconnect is possible and an
            # error SHOULD be signalled to the app or user."
            return "no kn_route_checkpoint was seen yet, so there is no place to resume from"
        return ""

    def _parameters(self) -> dict[str, str]:
        if self.scheme == EVENT_HASH:
            return {"do_max_age": f"{self.grace_s:g}"}
        return {"do_since_checkpoint": self.checkpoint}

    def _lose(self, why: str) -> None:
        self._due = None
        self._become(TunnelState.LOST)
        self._effects.append(SignalError(why))

    def _become(self, state: TunnelState) -> None:
        if state is not self.state:
            self.state = state
            self._effects.append(StateChanged(state))


_: type[Machine[Input, Effect]] = TunnelClient


def _seconds(text: bytes | None) -> float:
    """`kn_journal_reconnect_timeout`; the default where it is absent or can't be read."""
    try:
        return max(0.0, float(text)) if text is not None else GRACE_S
    except ValueError:
        return GRACE_S
