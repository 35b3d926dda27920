"""A client's side of a tunnel: it resumes after its connection was lost, or signals one error and ends.

    CLOSED     ── StartTunnel ──> OPENING, or RECOVERING with a checkpoint
    OPENING    ── StatusReceived ──> LIVE, or LOST;   ConnectionLost ──> WAITING;   AnswerRefused ──> WAITING, or LOST
    WAITING    ── StatusReceived ──> LIVE, or LOST;   ConnectionLost ──> WAITING;   AnswerRefused ──> WAITING, or LOST
    RECOVERING ── StatusReceived ──> RECOVERED, or LOST;   ConnectionLost, AnswerRefused ──> RECOVERING, or LOST
    LIVE, RECOVERED ── ConnectionLost ──> RECOVERING, or LOST
    any        ── StopTunnel ──> CLOSED

Other inputs come late, from a connection that is gone, and are ignored; a second StartTunnel raises. A connection on
which nothing came for too long is lost, too: `tick` sees that. The sentences quoted below are the specification's
(mod_pubsub, stateful reconnection).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, assert_never

from reknit.errors import LocalError
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.tunnel.client_messages import (
    AnswerRefused,
    BytesHeard,
    CloseConnection,
    ConnectionLost,
    DeliverElements,
    Effect,
    ElementsReceived,
    Input,
    OpenConnection,
    ReadingResumed,
    SignalError,
    StartTunnel,
    StateChanged,
    StatusReceived,
    StopTunnel,
    TunnelState,
)
from reknit.protocol.tunnel.elements import (
    CHECKPOINT,
    HASH,
    HEARTBEAT,
    LOCATION,
    SCHEME,
    STATUS,
    TIMEOUT,
    seen_key,
)
from reknit.protocol.tunnel.seen_events import ENTRIES_MAX, GRACE_S, SeenEvents

EVENT_HASH: Final = "kn_event_hash"
BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 5.0
GOOD_S: Final = BACKOFF_S_MAX
"""A connection that lasted this long was a good one: the next wait is short again."""
ANSWER_S_MAX: Final = 30.0
"""How long connecting may take, until the status event."""
QUIET_S_UNTOLD: Final = 45.0
"""How long nothing may come where the server does not say how often it sends a heartbeat."""
QUIET_S_MIN, QUIET_S_MAX = 2.0, 3600.0
"""The limits of that time, whatever the server says: two heartbeats may be too short for a busy machine."""
RETRY_AFTER_S_MAX: Final = 60.0
"""A server that asks for more patience is asked again after this time."""
RETRIED: Final = frozenset((408, 425, 429))
"""Statuses below 500 that ask for another attempt."""

TRANSITIONS: Final[dict[tuple[TunnelState, type[Any]], TunnelState]] = {
    (TunnelState.CLOSED, StartTunnel): TunnelState.OPENING,  # or RECOVERING, with a checkpoint
    **{
        (state, kind): after
        for state in (TunnelState.OPENING, TunnelState.WAITING)
        for kind, after in (
            (StatusReceived, TunnelState.LIVE),  # or LOST
            (ConnectionLost, TunnelState.WAITING),
            (AnswerRefused, TunnelState.WAITING),  # or LOST
        )
    },
    (TunnelState.RECOVERING, StatusReceived): TunnelState.RECOVERED,  # or LOST
    (TunnelState.RECOVERING, ConnectionLost): TunnelState.RECOVERING,  # or LOST, after the grace period
    (TunnelState.RECOVERING, AnswerRefused): TunnelState.RECOVERING,  # or LOST
    **{
        (state, kind): state
        for state in (TunnelState.LIVE, TunnelState.RECOVERED)
        for kind in (ElementsReceived, BytesHeard, ReadingResumed)
    },
    (TunnelState.LIVE, ConnectionLost): TunnelState.RECOVERING,  # or LOST
    (TunnelState.RECOVERED, ConnectionLost): TunnelState.RECOVERING,  # or LOST
    **{(state, StopTunnel): TunnelState.CLOSED for state in TunnelState},
}


class TunnelClient:
    """One tunnel. `quiet_s_max` replaces the two heartbeats after which a silent connection counts as lost.

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
        quiet_s_max: float | None = None,
    ) -> None:
        self.state = TunnelState.CLOSED
        self.scheme = ""
        self.grace_s = GRACE_S
        self.checkpoint = ""
        """The stored checkpoint: "Default to no saved checkpoint"."""
        self.why = ""
        """Why the last connection or attempt ended."""
        self.seen = SeenEvents(GRACE_S, seen_max)
        self.repeats = 0
        """How many events came again and were ignored."""
        self._rng = rng
        self._backoff = (backoff_s_min, backoff_s_max)
        self._quiet_s_given = quiet_s_max
        self._quiet_s = quiet_s_max or QUIET_S_UNTOLD
        self._attempts = 0
        self._is_connected = False
        """A connection is open, or being opened. Its deadline ends it; without one the deadline opens the next."""
        self._opened_at = 0.0
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
                self._begin(checkpoint, now)
            case StatusReceived(elements=elements):
                self._status(elements, state, now)
            case ElementsReceived(elements=elements):
                self._event(elements, now)
            case BytesHeard():
                self._heard_at = now
                self._due = now + self._quiet_s
            case ReadingResumed():
                self._due = now + self._quiet_s
            case ConnectionLost(why=why):
                self._cut(why, state, now)
            case AnswerRefused():
                self._refused(message, state, now)
            case StopTunnel():
                self._due = None
                self._become(state)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Give up a connection on which nothing comes, or try to connect again, if that is due."""
        if self._due is None or now < self._due:
            return
        self._due = None
        if self._is_connected:
            self._give_up(now)
        elif why := self._impossible(now):
            self._lose(why)
        else:
            self._connect(now)

    def next_deadline(self) -> float | None:
        return self._due

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening

    def _begin(self, checkpoint: str, now: float) -> None:
        self.checkpoint = checkpoint
        self._become(TunnelState.RECOVERING if checkpoint else TunnelState.OPENING)
        self._connect(now)

    def _connect(self, now: float) -> None:
        self._is_connected = True
        self._due = now + ANSWER_S_MAX
        if self.state is TunnelState.RECOVERING and self.scheme == EVENT_HASH:
            self._due = min(self._due, self._heard_at + self.grace_s)
        self._effects.append(OpenConnection(self._parameters()))

    def _status(self, elements: Mapping[str, bytes], state: TunnelState, now: float) -> None:
        status = elements.get(STATUS, b"").decode("utf-8", "replace")
        if status.partition(" ")[0] != "200":
            # "no stateful reconnect is possible and you MUST signal an error to the app or user"
            self._lose(status or "the server gave no status")
            return
        if why := self._impossible(now):
            # the attempt took so long that the server's 200 no longer covers what was missed
            self._effects.append(CloseConnection())
            self._lose(why)
            return
        self._opened_at = self._heard_at = now
        self.scheme = elements.get(SCHEME, b"").decode("utf-8", "replace")
        grace_s = _seconds(elements.get(TIMEOUT))
        self.grace_s = GRACE_S if grace_s is None else grace_s
        self._quiet_s = self._quiet_s_given or _quiet_s(_seconds(elements.get(HEARTBEAT)))
        self._due = now + self._quiet_s
        # an event that is replayed at the very end of the grace period still has to be recognised when it arrives
        self.seen.set_grace(2 * self.grace_s)
        self._note_checkpoint(elements)
        self._become(state)

    def _refused(self, answer: AnswerRefused, state: TunnelState, now: float) -> None:
        """Something other than a tunnel answered: an error, unless another attempt may find the server itself."""
        if answer.code >= 500 or answer.code in RETRIED:
            self._cut(answer.why, state, now, answer.retry_after_s)
        else:
            self._lose(answer.why)

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

    def _give_up(self, now: float) -> None:
        is_open = self.state in (TunnelState.LIVE, TunnelState.RECOVERED)
        self._effects.append(CloseConnection())
        self._cut(
            f"the server sent nothing for {self._quiet_s:g} s"
            if is_open
            else "the server did not answer in time",
            TRANSITIONS[self.state, ConnectionLost],
            now,
        )

    def _cut(self, why: str, state: TunnelState, now: float, wait_s_min: float = 0.0) -> None:
        if not self._is_connected:
            return  # it was given up before
        self._is_connected = False
        self.why = why
        if impossible := self._impossible(now):
            self._lose(f"{why}; {impossible}")
            return
        if self.state in (TunnelState.LIVE, TunnelState.RECOVERED) and now - self._opened_at >= GOOD_S:
            self._attempts = 0
        self._become(state)
        low, high = self._backoff
        wait_s = self._rng.uniform(low / 2, min(high, low * 2.0 ** min(self._attempts, 30)))
        self._due = now + max(wait_s, min(wait_s_min, RETRY_AFTER_S_MAX))
        self._attempts += 1

    def _impossible(self, now: float) -> str:
        """Why no stateful reconnect is possible, or an empty text."""
        if self.state in (TunnelState.OPENING, TunnelState.WAITING):
            return ""  # nothing came yet that could be missed
        if self.scheme == EVENT_HASH:
            # the timeout is "how many seconds a stateful reconnect is theoretically possible"
            away_s = now - self._heard_at
            if away_s >= self.grace_s:
                return f"cut off for {away_s:.0f} s, and the server's grace period is {self.grace_s:.0f} s"
        elif not self.checkpoint:
            # "If you haven't seen a kn_route_checkpoint header yet, no stateful reconnect is possible and an
            # error SHOULD be signalled to the app or user."
            return "no kn_route_checkpoint was seen yet, so there is no place to resume from"
        return ""

    def _parameters(self) -> dict[str, str]:
        if self.state is not TunnelState.RECOVERING:
            return {}
        if self.scheme == EVENT_HASH:
            return {"do_max_age": f"{self.grace_s:g}"}
        return {"do_since_checkpoint": self.checkpoint}

    def _lose(self, why: str) -> None:
        self._due = None
        self.why = why
        self._become(TunnelState.LOST)
        self._effects.append(SignalError(why))

    def _become(self, state: TunnelState) -> None:
        if state is not self.state:
            self.state = state
            self._effects.append(StateChanged(state))


_: type[Machine[Input, Effect]] = TunnelClient


def _quiet_s(heartbeat_s: float | None) -> float:
    """How long nothing may come from a server with such heartbeats."""
    return QUIET_S_UNTOLD if heartbeat_s is None else min(max(QUIET_S_MIN, 2 * heartbeat_s), QUIET_S_MAX)


def _seconds(text: bytes | None) -> float | None:
    """A number of seconds; None where it is absent or can't be read."""
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None
