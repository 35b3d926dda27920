"""Outcomes and attempts that wait for room in the journal count like those in the ledger."""

from __future__ import annotations

from reknit.outcome import Outcome
from reknit.protocol.machine import PeerLeft
from tests.protocol.dispatch.bench import Bench, letters, redelivered, seqs


def test_event_that_ended_does_not_come_again_while_its_outcome_waits_for_the_journal() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 2)
    bench.is_full = True
    bench.say(Outcome.ACCEPTED, 1)
    bench.give(PeerLeft())
    assert seqs(bench.subscribe("audit", peer="q")) == [2]


def test_attempts_count_while_they_wait_for_the_journal() -> None:
    bench = Bench(attempts_max=2)
    bench.subscribe("audit")
    bench.publish(1)
    bench.is_full = True
    bench.say(Outcome.FAILED, 1)
    bench.give(PeerLeft())
    assert redelivered([*bench.subscribe("audit", peer="q"), *bench.tick(2.0)]) == [(1, 2, 2)]
    assert letters(bench.say(Outcome.FAILED, 1, peer="q", now=2.0)) == [(1, 2, "attempts_exhausted")]
