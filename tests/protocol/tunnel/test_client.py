"""Every MUST, SHOULD and default of the specification, in its own words, and their consequences."""

from __future__ import annotations

from random import Random

import pytest

from reknit.errors import LocalError
from reknit.protocol.tunnel.client import TunnelClient
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

    def feed(self, *messages: Input) -> list[Effect]:
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
    def states(self) -> list[str]:
        return [one.state.value for one in self.effects if isinstance(one, StateChanged)]

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


def test_a_200_that_comes_after_the_grace_period_is_no_recovery() -> None:
    driven = Driven(**HASH, kn_journal_reconnect_timeout=b"4")
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    driven.now = 4.0
    effects = driven.feed(StatusReceived({**OK, **HASH}), event("much later"))
    assert driven.states[-1] == "lost"
    assert CloseConnection() in effects
    assert driven.delivered == []
    assert "grace period" in driven.signals[0]


def test_an_attempt_that_hangs_is_given_up_when_the_grace_period_ends() -> None:
    driven = Driven(**HASH, kn_journal_reconnect_timeout=b"4")
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    assert driven.client.next_deadline() == 4.0
    assert CloseConnection() in driven.wait()
    assert len(driven.signals) == 1
    assert driven.client.next_deadline() is None


# -- connections on which nothing comes


def test_an_attempt_that_hangs_is_given_up_and_another_one_follows() -> None:
    driven = Driven()
    assert driven.wait() == [CloseConnection(), StateChanged(TunnelState.WAITING)]
    assert driven.client.why == "the server did not answer in time"
    driven.feed(ConnectionLost("closed by us"))
    assert driven.wait() == [OpenConnection({})]


def test_a_live_tunnel_is_never_older_than_two_heartbeats_of_its_server() -> None:
    driven = Driven(**HASH, kn_heartbeat_s=b"15")
    driven.now = 29.0
    driven.feed(BytesHeard())
    driven.now = 58.9
    driven.client.tick(driven.now)
    assert driven.client.state is TunnelState.LIVE
    assert driven.client.next_deadline() == 59.0
    assert driven.wait() == [CloseConnection(), StateChanged(TunnelState.RECOVERING)]
    assert driven.client.why == "the server sent nothing for 30 s"


@pytest.mark.parametrize(
    ("told", "quiet_s"), [(b"0.1", 2.0), (b"soon", 45.0), (b"-1", 2.0), (b"inf", 3600.0), (b"nan", 2.0)]
)
def test_a_heartbeat_of_any_length_is_awaited_for_a_reasonable_time(told: bytes, quiet_s: float) -> None:
    assert Driven(**HASH, kn_heartbeat_s=told).client.next_deadline() == quiet_s


def test_silence_while_the_application_is_busy_says_nothing() -> None:
    driven = Driven(**HASH, kn_heartbeat_s=b"15")
    driven.now = 500.0  # the application took so long for the first events
    driven.feed(ReadingResumed())
    driven.client.tick(529.0)
    assert driven.client.state is TunnelState.LIVE


# -- answers that are none of a tunnel


@pytest.mark.parametrize("code", [200, 302, 401, 403, 404])
def test_an_answer_of_something_else_is_one_error_that_says_what_came(code: int) -> None:
    driven = Driven(**HASH)
    driven.feed(ConnectionLost("reset"))
    driven.wait()
    driven.feed(AnswerRefused(code, "http://x/kn answered"))
    assert driven.signals == ["http://x/kn answered"]
    assert driven.client.next_deadline() is None


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_an_answer_that_may_be_better_later_is_tried_again_in_one_state(code: int) -> None:
    opening, recovering = Driven(), Driven(**HASH)
    recovering.feed(ConnectionLost("reset"))
    for driven in (opening, recovering):
        for _ in range(5):
            driven.wait()
            driven.feed(AnswerRefused(code, "what came"))
        assert not driven.signals
        assert driven.client.why == "what came"
    assert opening.states == ["opening", "waiting"]
    assert recovering.states == ["opening", "live", "recovering"]


def test_a_server_that_asks_for_patience_is_asked_again_no_sooner() -> None:
    driven = Driven()
    driven.feed(AnswerRefused(503, "full", retry_after_s=10.0))
    assert driven.client.next_deadline() == 10.0
    driven.wait()
    driven.feed(AnswerRefused(503, "full", retry_after_s=1e9))
    assert driven.client.next_deadline() == 10.0 + 60.0


def test_waits_are_short_again_after_a_connection_that_was_good_for_a_while() -> None:
    def wait_after(good_s: float) -> float:
        driven = Driven(**HASH, kn_journal_reconnect_timeout=b"1e9")
        for _ in range(30):
            driven.feed(ConnectionLost("refused"))
            driven.wait()
        driven.feed(StatusReceived({**OK, **HASH}))
        driven.now += good_s
        driven.feed(ConnectionLost("reset"))
        return (driven.client.next_deadline() or 0.0) - driven.now

    assert wait_after(good_s=60.0) <= 0.1
    assert wait_after(good_s=0.0) > 0.1


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
    assert driven.states == ["opening", "live", "recovering", "recovered"]


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
