"""Leases: a subscriber that holds an event for too long without settling it loses it to the next attempt."""

from __future__ import annotations

from typing import Any

from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.machine import PeerLeft
from reknit.protocol.queues.leases import WINDOW_FIRST
from reknit.wire.messages import Held, Revoked
from tests.protocol.dispatch.bench import SOURCE, STREAM, Bench, letters, ranges, redelivered, said, seqs

LEASE_S = 10.0


def leased(count: int = 1, **fields: Any) -> Bench:
    bench = Bench(lease_s=LEASE_S, **fields)
    bench.subscribe("audit")
    bench.publish(1, count)
    return bench


def test_event_that_is_held_past_its_lease_goes_to_the_next_attempt() -> None:
    bench = leased()
    assert bench.tick(LEASE_S - 0.1) == []
    assert said(bench.tick(LEASE_S)) == [Revoked(1, *STREAM, 1, 2)]
    assert redelivered(bench.tick(2 * LEASE_S - 0.1)) == [(1, 2, 2)]


def test_lost_lease_counts_as_a_failed_attempt() -> None:
    bench = leased(attempts_max=2)
    bench.tick(LEASE_S)
    bench.tick(LEASE_S + 5)
    assert letters(bench.tick(3 * LEASE_S)) == [(1, 2, "attempts_exhausted")]


def test_settled_event_has_no_lease_to_lose() -> None:
    bench = leased(3)
    bench.say(Outcome.ACCEPTED, 1, 3)
    assert said(bench.tick(LEASE_S)) == [Revoked(1, *STREAM, 3, 4)]


def test_in_progress_extends_a_lease() -> None:
    bench = leased(3)
    bench.say(Outcome.RECEIVED, 2, now=LEASE_S - 1)
    assert said(bench.tick(LEASE_S)) == [Revoked(1, *STREAM, 1, 2), Revoked(1, *STREAM, 3, 4)]
    bench.say(Outcome.RECEIVED, 2, now=2 * LEASE_S - 2)
    assert [
        one for one in said(bench.tick(2 * LEASE_S - 1)) if isinstance(one, Revoked) and one.start == 2
    ] == []
    lost = [one for one in said(bench.tick(3 * LEASE_S)) if isinstance(one, Revoked)]
    assert Revoked(1, *STREAM, 2, 3) in lost


def test_in_progress_does_not_count_as_an_attempt() -> None:
    bench = leased()
    bench.say(Outcome.RECEIVED, 1)
    assert bench.journal.ledger.accounts["audit"].tallies == {}


def test_late_accept_still_ends_the_event() -> None:
    """A lease gets events to another subscriber; it is not there to duplicate events that are done."""
    bench = leased()
    bench.tick(LEASE_S)
    bench.say(Outcome.ACCEPTED, 1, now=LEASE_S)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 2))}
    assert redelivered(bench.tick(10 * LEASE_S)) == []


def test_late_failure_is_not_counted_again() -> None:
    bench = leased()
    bench.tick(LEASE_S)
    bench.say(Outcome.FAILED, 1, now=LEASE_S, attempt=1)
    assert bench.journal.ledger.accounts["audit"].tallies[STREAM][1].failed == 1


def test_lease_of_an_attempt_does_not_end_the_next_one_early() -> None:
    bench = leased()
    bench.say(Outcome.RELEASED, 1)
    assert redelivered(bench.tick(LEASE_S - 1)) == [(1, 2, 2)]
    assert said(bench.tick(LEASE_S + 1)) == []
    assert said(bench.tick(2 * LEASE_S)) == [Revoked(1, *STREAM, 1, 2)]


def test_event_set_aside_and_not_delivered_can_not_be_settled() -> None:
    bench = leased(WINDOW_FIRST + 10)
    bench.say(Outcome.ACCEPTED, 1, WINDOW_FIRST + 11)
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, WINDOW_FIRST + 1))}


def test_no_more_is_handed_out_ahead_than_a_lease_covers() -> None:
    bench = Bench(lease_s=LEASE_S)
    bench.subscribe("audit")
    got = seqs(bench.publish(1, 100))
    assert got == list(range(1, WINDOW_FIRST + 1))
    got = seqs(bench.say(Outcome.ACCEPTED, 1, 5, now=9.0))
    assert got == list(range(WINDOW_FIRST + 1, WINDOW_FIRST + 5))


def test_quick_subscriber_prefetches_more_and_one_that_loses_a_lease_less() -> None:
    bench = Bench(lease_s=LEASE_S)
    bench.subscribe("audit")
    bench.publish(1, 1000)
    leases = bench.dispatch.queues["p", 1].leases
    assert leases is not None
    bench.say(Outcome.ACCEPTED, 1, WINDOW_FIRST + 1, now=1.0)
    assert leases.window == 2 * WINDOW_FIRST
    bench.tick(LEASE_S + 1)
    assert leases.window == WINDOW_FIRST


def test_every_event_comes_in_order_within_the_window() -> None:
    bench = Bench(lease_s=LEASE_S)
    bench.subscribe("audit")
    got: list[int] = []
    for first in range(1, 400, 40):
        got += seqs(bench.publish(first, 40, now=0.001 * first))
    done = 0
    while done < len(got):
        low, done = done, len(got)
        got += seqs(bench.say(Outcome.ACCEPTED, low + 1, done + 1, now=1.0 + done))
    assert got == list(range(1, 401))


def test_event_held_across_a_reconnection_gets_a_new_lease() -> None:
    bench = leased()
    bench.give(PeerLeft())
    bench.subscribe("audit", held=[Held("plant/a", SOURCE, 1, 2)])
    assert said(bench.tick(LEASE_S)) == [Revoked(1, *STREAM, 1, 2)]


def test_without_leases_an_event_may_be_held_while_the_connection_is_up() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1)
    assert said(bench.tick(1e6)) == []


def test_unnamed_subscriber_has_no_lease() -> None:
    """Nobody else waits for its events, so extending changes nothing."""
    bench = Bench(lease_s=LEASE_S)
    bench.subscribe()
    assert len(seqs(bench.publish(1, 2 * WINDOW_FIRST))) == 2 * WINDOW_FIRST
    bench.say(Outcome.RECEIVED, 1)
    assert said(bench.tick(1e6)) == []
