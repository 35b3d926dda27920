"""Every MUST, SHOULD and default of the specification, in its own words, and their consequences."""

from __future__ import annotations

from random import Random

import pytest

from reknit.errors import LocalError
from reknit.protocol.tunnel.client import (
    BytesHeard,
    ConnectionLost,
    DeliverElements,
    Effect,
    ElementsReceived,
    OpenConnection,
    SignalError,
    StartTunnel,
    StateChanged,
    StatusReceived,
    StopTunnel,
    TunnelClient,
    TunnelState,
)

HASH = {"kn_journal_reconnect_scheme": b"kn_event_hash"}
OK = {"status": b"200 OK"}


def event(payload: str = "x", **elements: str) -> ElementsReceived:
    return ElementsReceived(
        {"kn_payload": payload.encode(), **{name: value.encode() for name, value in elements.items()}}
    )


class Driven:
    """A client with its effects, and a clock that moves only when a test says so."""

    def __init__(self, **status: bytes) -> None:
        self.client = TunnelClient(Random(7))
        self.now = 0.0
        self.effects: list[Effect] = []
        self.feed(StartTunnel())
        if status:
            self.feed(StatusReceived({**OK, **status}))

    def feed(
        self,
        *messages: StartTunnel | StatusReceived | ElementsReceived | BytesHeard | ConnectionLost | StopTunnel,
    ) -> list[Effect]:
        fresh: list[Effect] = []
        for message in messages:
            self.client.receive(message, "x", self.now)
            fresh += self.client.take_effects()
        self.effects += fresh
        return fresh

    def wait(self, seconds: float = 0.0) -> list[Effect]:
        due = self.client.next_deadline()
        self.now = max(self.now + seconds, due or 0.0)
        self.client.tick(self.now)
        fresh = self.client.take_effects()
        self.effects += fresh
        return fresh

    @property
    def delivered(self) -> list[str]:
        return [
            one.elements["kn_payload"].decode() for one in self.effects if isinstance(one, DeliverElements)
        ]

    @property
    def signals(self) -> list[str]:
        return [one.why for one in self.effects if isinstance(one, SignalError)]

    @property
    def connects(self) -> list[dict[str, str]]:
        return [one.parameters for one in self.effects if isinstance(one, OpenConnection)]


# -- kn_journal_reconnect_scheme=kn_event_hash


def test_the_reconnect_timeout_defaults_to_60_seconds() -> None:
    driven = Driven(**HASH)
    assert driven.client.grace_s == 60.0
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    assert driven.connects[-1] == {"do_max_age": "60"}


def test_the_reconnect_timeout_is_taken_from_the_status_event() -> None:
    driven = Driven(**HASH, kn_journal_reconnect_timeout=b"90")
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    assert driven.connects[-1] == {"do_max_age": "90"}


def test_a_timeout_that_cannot_be_read_is_the_default() -> None:
    assert Driven(**HASH, kn_journal_reconnect_timeout=b"soon").client.grace_s == 60.0


def test_an_event_that_is_already_in_the_cache_is_ignored() -> None:
    driven = Driven(**HASH)
    driven.feed(
        event("a", kn_event_hash="1", kn_route_location="/r"),
        event("a", kn_event_hash="1", kn_route_location="/r"),
    )
    assert driven.delivered == ["a"]
    assert driven.client.repeats == 1


def test_events_are_indexed_by_route_location_and_event_hash() -> None:
    driven = Driven(**HASH)
    driven.feed(
        event("a", kn_event_hash="1", kn_route_location="/r"),
        event("b", kn_event_hash="1", kn_route_location="/s"),
    )
    assert driven.delivered == ["a", "b"]


def test_a_missing_route_location_is_equivalent_to_an_empty_string() -> None:
    driven = Driven(**HASH)
    driven.feed(event("a", kn_event_hash="1"), event("b", kn_event_hash="1", kn_route_location=""))
    assert driven.delivered == ["a"]


def test_an_event_without_a_hash_is_always_delivered() -> None:
    driven = Driven(**HASH)
    driven.feed(event("a"), event("a"))
    assert driven.delivered == ["a", "a"]


def test_cache_entries_outlive_the_grace_period_before_they_are_discarded() -> None:
    driven = Driven(**HASH)
    driven.feed(event("a", kn_event_hash="1"))
    driven.now = 61.0  # replayed at the very end of the grace period, and slow to arrive
    driven.feed(event("a", kn_event_hash="1"))
    driven.now = 200.0
    driven.feed(event("b", kn_event_hash="2"))
    assert driven.delivered == ["a", "b"]
    assert len(driven.client.seen) == 1


def test_upon_disconnection_it_reconnects_with_do_max_age_set_to_the_stored_grace_period() -> None:
    driven = Driven(**HASH, kn_journal_reconnect_timeout=b"30")
    driven.feed(event("a", kn_event_hash="1"), ConnectionLost("reset"))
    driven.wait()
    assert driven.connects == [{}, {"do_max_age": "30"}]
    driven.feed(StatusReceived({**OK, **HASH}), event("a", kn_event_hash="1"), event("b", kn_event_hash="2"))
    assert driven.delivered == ["a", "b"]
    assert driven.client.state is TunnelState.RECOVERED


@pytest.mark.parametrize("scheme", [b"kn_event_hash", b"kn_route_checkpoint", b"something else", b""])
@pytest.mark.parametrize("status", [b"404 Expired", b"204 No Content", b"500 Oops", b""])
def test_a_non_200_status_event_on_reconnect_must_signal_an_error(scheme: bytes, status: bytes) -> None:
    driven = Driven(kn_journal_reconnect_scheme=scheme, kn_route_checkpoint=b"c1")
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    driven.feed(StatusReceived({"status": status, **HASH}))
    assert len(driven.signals) == 1
    assert driven.client.state is TunnelState.LOST


def test_the_error_is_signalled_once_and_no_fresh_tunnel_opens_in_silence() -> None:
    driven = Driven(**HASH)
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    driven.feed(StatusReceived({"status": b"404 Expired"}))
    connects = len(driven.connects)
    driven.feed(
        ConnectionLost("reset"), StatusReceived({**OK, **HASH}), event("late"), ConnectionLost("again")
    )
    driven.wait(1_000.0)
    assert (len(driven.signals), len(driven.connects), driven.delivered) == (1, connects, [])


def test_the_grace_period_is_how_long_a_stateful_reconnect_is_possible() -> None:
    """A server's 200 to do_max_age=60 promises no earlier events: a client that was away for longer lost them."""
    driven = Driven(**HASH)
    driven.now = 10.0
    driven.feed(BytesHeard())
    driven.now = 70.1
    driven.feed(ConnectionLost("silent"))
    assert driven.signals
    assert "grace period" in driven.signals[0]


def test_the_time_away_counts_from_the_last_byte_that_came() -> None:
    driven = Driven(**HASH)
    driven.now = 1_000.0
    driven.feed(BytesHeard())
    driven.now = 1_059.0
    driven.feed(ConnectionLost("silent"))
    assert not driven.signals


def test_it_gives_up_when_the_grace_period_ends_while_it_tries() -> None:
    driven = Driven(**HASH)
    driven.feed(ConnectionLost("reset"))
    for _ in range(100):
        driven.wait()
        driven.feed(ConnectionLost("refused"))
    assert len(driven.signals) == 1
    assert driven.client.next_deadline() is None


# -- no scheme, kn_route_checkpoint, or anything else


@pytest.mark.parametrize("scheme", [None, b"kn_route_checkpoint", b"anything else"])
def test_any_scheme_but_the_hash_reconnects_since_the_stored_checkpoint(scheme: bytes | None) -> None:
    driven = Driven(**({} if scheme is None else {"kn_journal_reconnect_scheme": scheme}) | {"x": b""})
    driven.feed(event("a", kn_route_checkpoint="c1"), ConnectionLost("reset"))
    driven.wait()
    assert driven.connects[-1] == {"do_since_checkpoint": "c1"}


def test_it_defaults_to_no_saved_checkpoint() -> None:
    assert Driven(x=b"").client.checkpoint == ""


def test_any_event_with_a_checkpoint_header_sets_the_stored_checkpoint_and_one_without_does_not_clear_it() -> (
    None
):
    driven = Driven(x=b"")
    driven.feed(event("a", kn_route_checkpoint="c1"), event("b", kn_route_checkpoint="c2"), event("c"))
    assert driven.client.checkpoint == "c2"


def test_without_a_checkpoint_header_yet_an_error_should_be_signalled() -> None:
    driven = Driven(x=b"")
    driven.feed(event("a"), ConnectionLost("reset"))
    assert driven.signals
    assert "kn_route_checkpoint" in driven.signals[0]
    assert driven.connects == [{}]


def test_without_the_hash_scheme_hashes_are_not_looked_at() -> None:
    driven = Driven(x=b"")
    driven.feed(event("a", kn_event_hash="1"), event("a", kn_event_hash="1"))
    assert driven.delivered == ["a", "a"]


# -- start, stop, checkpoints


def test_a_tunnel_that_is_started_twice_raises() -> None:
    driven = Driven(**HASH)
    with pytest.raises(LocalError, match="started once"):
        driven.client.receive(StartTunnel(), "app", driven.now)
    assert driven.client.state is TunnelState.LIVE


def test_a_first_connection_that_fails_is_tried_again_with_nothing_to_recover() -> None:
    driven = Driven()
    driven.feed(ConnectionLost("refused"))
    assert driven.client.state is TunnelState.WAITING
    driven.wait()
    assert driven.connects == [{}, {}]
    assert not driven.signals


def test_a_first_status_other_than_200_is_an_error() -> None:
    driven = Driven()
    driven.feed(StatusReceived({"status": b"403 Forbidden"}))
    assert driven.signals == ["403 Forbidden"]


def test_a_program_resumes_from_the_checkpoint_of_an_earlier_one() -> None:
    client = TunnelClient(Random(1))
    client.receive(StartTunnel("c9"), "app", 0.0)
    assert client.take_effects() == [
        StateChanged(TunnelState.RECOVERING),
        OpenConnection({"do_since_checkpoint": "c9"}),
    ]
    client.receive(StatusReceived(OK), "server", 0.1)
    assert client.state is TunnelState.RECOVERED


def test_an_application_sees_live_recovering_recovered() -> None:
    driven = Driven(**HASH)
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    driven.feed(StatusReceived({**OK, **HASH}))
    states = [one.state.value for one in driven.effects if isinstance(one, StateChanged)]
    assert states == ["opening", "live", "recovering", "recovered"]


def test_waits_grow_and_stay_under_their_ceiling() -> None:
    driven = Driven(**HASH, kn_journal_reconnect_timeout=b"1e9")
    waits = []
    for _ in range(40):
        driven.feed(ConnectionLost("refused"))
        due = driven.client.next_deadline()
        assert due is not None
        waits.append(due - driven.now)
        driven.wait()
    assert max(waits) <= 10.0
    assert max(waits[10:]) > 1.0 > waits[0]


def test_after_the_end_nothing_happens() -> None:
    driven = Driven(**HASH)
    driven.feed(ConnectionLost("reset"), StopTunnel())
    driven.wait(100.0)
    assert driven.client.state is TunnelState.CLOSED
    assert len(driven.connects) == 1
