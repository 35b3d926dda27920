"""A client's side of a tunnel: keeps its place through cuts, or signals one error and opens nothing in silence.

Carries out seed 001. The sentences quoted below are its.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Any, Final, assert_never

import msgspec

from reknit.protocol.machine import Peer
from reknit.protocol.tunnel.elements import CHECKPOINT, HASH, LOCATION, SCHEME, STATUS, TIMEOUT, seen_key
from reknit.protocol.tunnel.seen import ENTRIES_MAX, GRACE_S, Seen

EVENT_HASH: Final = "kn_event_hash"
BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 5.0


class State(Enum):
    """Where a tunnel is. The last four are what an application can show."""

    CLOSED = "closed"
    OPENING = "opening"
    WAITING = "waiting"
    """It could never be opened yet: the next attempt is due."""
    LIVE = "live"
    RECOVERING = "recovering"
    """It was cut off and is trying to go on."""
    RECOVERED = "recovered"
    LOST = "lost"
    """It can't go on where it was: an error was signalled, and nothing more comes."""


class Begin(msgspec.Struct, frozen=True):
    """Open the tunnel. With a checkpoint of an earlier program, go on from there."""

    checkpoint: str = ""


class Status(msgspec.Struct, frozen=True):
    """The first event on a tunnel."""

    elements: Mapping[str, bytes]


class Event(msgspec.Struct, frozen=True):
    """Any later event."""

    elements: Mapping[str, bytes]


class Heard(msgspec.Struct, frozen=True):
    """Bytes came, if only a heartbeat: the tunnel was in order up to now."""


class Cut(msgspec.Struct, frozen=True):
    """The connection is gone, or could not be opened."""

    why: str


class End(msgspec.Struct, frozen=True):
    """The application wants no more."""


class Connect(msgspec.Struct, frozen=True):
    """Open a connection with these further parameters of the route."""

    parameters: dict[str, str]


class Deliver(msgspec.Struct, frozen=True):
    """An event for the application: it has not been delivered before, as far as can be known."""

    elements: Mapping[str, bytes]


class Signal(msgspec.Struct, frozen=True):
    """The one error: why there is no stateful reconnect. Nothing follows it."""

    why: str


class Changed(msgspec.Struct, frozen=True):
    """The state changed."""

    state: State


Input = Begin | Status | Event | Heard | Cut | End
Effect = Connect | Deliver | Signal | Changed

TRANSITIONS: Final[dict[tuple[State, type[Any]], State]] = {
    (State.CLOSED, Begin): State.OPENING,  # or RECOVERING, with a checkpoint
    (State.OPENING, Status): State.LIVE,  # or LOST
    (State.OPENING, Cut): State.WAITING,
    (State.RECOVERING, Status): State.RECOVERED,  # or LOST
    (State.RECOVERING, Cut): State.RECOVERING,  # or LOST, when the grace period is over
    (State.LIVE, Event): State.LIVE,
    (State.LIVE, Heard): State.LIVE,
    (State.LIVE, Cut): State.RECOVERING,  # or LOST, where no stateful reconnect is possible
    (State.RECOVERED, Event): State.RECOVERED,
    (State.RECOVERED, Heard): State.RECOVERED,
    (State.RECOVERED, Cut): State.RECOVERING,  # or LOST
    **{(state, End): State.CLOSED for state in State},
}


class TunnelClient:
    """One tunnel.

    >>> client = TunnelClient(Random(1))
    >>> client.receive(Begin(), "app", 0.0)
    >>> client.take_effects()
    [Changed(state=<State.OPENING: 'opening'>), Connect(parameters={})]
    >>> client.receive(Status({"status": b"200 OK", "kn_journal_reconnect_scheme": b"kn_event_hash"}), "server", 0.1)
    >>> client.receive(Cut("reset"), "server", 9.0)
    >>> client.tick(client.next_deadline())
    >>> client.take_effects()[-1]
    Connect(parameters={'do_max_age': '60'})
    """

    def __init__(
        self,
        rng: Random,
        backoff_s_min: float = BACKOFF_S_MIN,
        backoff_s_max: float = BACKOFF_S_MAX,
        seen_max: int = ENTRIES_MAX,
    ) -> None:
        self.state = State.CLOSED
        self.scheme = ""
        self.grace_s = GRACE_S
        self.checkpoint = ""
        """The stored checkpoint: "Default to no saved checkpoint"."""
        self.seen = Seen(GRACE_S, seen_max)
        self.repeats = 0
        """Events that came again and were ignored."""
        self._rng = rng
        self._backoff = (backoff_s_min, backoff_s_max)
        self._attempts = 0
        self._heard_at = 0.0
        self._due: float | None = None
        self._effects: list[Effect] = []

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the application or the connection. What does not fit the state changes nothing."""
        state = TRANSITIONS.get((self.state, type(message)))
        if state is None:
            return
        match message:
            case Begin(checkpoint=checkpoint):
                self._begin(checkpoint)
            case Status(elements=elements):
                self._status(elements, state, now)
            case Event(elements=elements):
                self._event(elements, now)
            case Heard():
                self._heard_at = now
            case Cut(why=why):
                self._cut(why, state, now)
            case End():
                self._due = None
                self._become(state)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Try again, when that is due."""
        if self._due is None or now < self._due:
            return
        self._due = None
        if self.state is State.WAITING:
            self._become(State.OPENING)
            self._effects.append(Connect({}))
        elif why := self._impossible(now):
            self._lose(why)
        else:
            self._effects.append(Connect(self._parameters()))

    def next_deadline(self) -> float | None:
        return self._due

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening

    def _begin(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._become(State.RECOVERING if checkpoint else State.OPENING)
        self._effects.append(Connect(self._parameters() if checkpoint else {}))

    def _status(self, elements: Mapping[str, bytes], state: State, now: float) -> None:
        status = elements.get(STATUS, b"").decode("utf-8", "replace")
        if status.partition(" ")[0] != "200":
            # "no stateful reconnect is possible and you MUST signal an error to the app or user"
            self._lose(status or "the server gave no status")
            return
        self._attempts = 0
        self._heard_at = now
        self.scheme = elements.get(SCHEME, b"").decode("utf-8", "replace")
        self.grace_s = _seconds(elements.get(TIMEOUT))
        # what is replayed at the grace period's very end still has to be known when it arrives
        self.seen.grace_s = 2 * self.grace_s
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
        self._effects.append(Deliver(elements))

    def _note_checkpoint(self, elements: Mapping[str, bytes]) -> None:
        """ "any event with a kn_route_checkpoint header sets the stored checkpoint" """
        if CHECKPOINT in elements:
            self.checkpoint = elements[CHECKPOINT].decode("utf-8", "replace")

    # -- going on

    def _cut(self, why: str, state: State, now: float) -> None:
        if self.state is not State.OPENING and (impossible := self._impossible(now)):
            self._lose(f"{why}; {impossible}")
            return
        self._become(state)
        low, high = self._backoff
        self._due = now + self._rng.uniform(low / 2, min(high, low * 2.0 ** min(self._attempts, 30)))
        self._attempts += 1

    def _impossible(self, now: float) -> str:
        """Why no stateful reconnect is possible, or nothing."""
        if self.scheme == EVENT_HASH:
            # the timeout is "how many seconds a stateful reconnect is theoretically possible"
            away_s = now - self._heard_at
            if away_s > self.grace_s:
                return f"cut off for {away_s:.0f} s, over the server's grace period of {self.grace_s:.0f} s"
        elif not self.checkpoint:
            # "If you haven't seen a kn_route_checkpoint header yet, no stateful reconnect is possible and an
            # error SHOULD be signalled to the app or user."
            return "no kn_route_checkpoint was seen yet, so there is no place to go on from"
        return ""

    def _parameters(self) -> dict[str, str]:
        if self.scheme == EVENT_HASH:
            return {"do_max_age": f"{self.grace_s:g}"}
        return {"do_since_checkpoint": self.checkpoint}

    def _lose(self, why: str) -> None:
        self._due = None
        self._become(State.LOST)
        self._effects.append(Signal(why))

    def _become(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._effects.append(Changed(state))


def _seconds(text: bytes | None) -> float:
    """`kn_journal_reconnect_timeout`; the default where it is absent or can't be read."""
    try:
        return max(0.0, float(text)) if text is not None else GRACE_S
    except ValueError:
        return GRACE_S
