"""A subscriber with very many series in flight is opened in steps, and misses nothing of what happens meanwhile."""

from __future__ import annotations

import pytest

from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.dispatch import resumption
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import Send
from reknit.protocol.machine import PeerLeft
from reknit.records import SubscriberClosed
from reknit.seqset import SeqSet
from reknit.wire.messages import Held, Holding, Revoked, Subscribed, Unsubscribe, Unsubscribed
from tests.protocol.dispatch.bench import SOURCE, Bench, seqs

STEP = 4


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "STEP", STEP)


def away(count: int = 10) -> Bench:
    """A durable subscriber that got one event of each of many topics, settled none, and went away."""
    bench = Bench(lease_s=30.0)
    bench.subscribe("audit")
    for number in range(count):
        bench.publish(number + 1, topic=f"plant/{number}")
    bench.give(PeerLeft())
    return bench


def held(*numbers: int) -> list[Held]:
    return [Held(f"plant/{number}", SOURCE, number + 1, number + 2) for number in numbers]


def told(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def opened(bench: Bench) -> list[Effect]:
    """Tick until nothing is due at once any more."""
    effects: list[Effect] = []
    while bench.dispatch.next_deadline() == 0.0:
        effects += bench.tick(0.0)
    return effects


def test_subscription_with_much_in_flight_is_opened_after_several_steps() -> None:
    bench = away()
    assert bench.subscribe("audit", held=held(*range(9))) == []
    assert bench.tick(0.0) == []
    effects = opened(bench)
    assert isinstance(told(effects)[0], Subscribed)
    assert seqs(effects) == [10], "what it does not have"
    assert bench.dispatch.queues["p", 1].unsettled.in_flight == 10


def test_subscription_with_little_in_flight_is_opened_at_once() -> None:
    bench = away()
    assert seqs(bench.subscribe("audit", held=held(0, 1))) == list(range(3, 11))


def test_everything_that_was_said_before_subscribing_counts() -> None:
    bench = away()
    assert bench.give(Holding(1, held(0, 1, 2, 3))) == []
    assert bench.give(Holding(1, held(4, 5, 6))) == []
    assert bench.give(Holding(2, held(9))) == [], "of another subscription"
    assert bench.subscribe("audit", held=held(7)) == []
    assert seqs(opened(bench)) == [9, 10]


def test_events_that_come_meanwhile_are_delivered_afterwards() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)))
    assert bench.publish(11, topic="plant/new") == []
    assert seqs(opened(bench)) == [11]


def test_subscriber_without_a_name_misses_nothing_that_comes_meanwhile() -> None:
    bench = away()
    bench.subscribe(held=held(*range(10)))
    bench.publish(11, topic="plant/new")
    assert seqs(opened(bench)) == [11]
    assert bench.dispatch.subscribers.take_opened() == ["p"], "other nodes are told of its topics"


def test_leases_of_what_a_subscriber_has_run_out() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)))
    opened(bench)
    revoked = [one for one in told(bench.tick(31.0)) if isinstance(one, Revoked)]
    assert [one.start for one in revoked] == list(range(1, 11))


def test_an_event_that_ended_meanwhile_is_not_delivered() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(9)))
    bench.journal.ledger.settle("audit", "plant/9", SOURCE, 10, 11, FinalOutcome.LOST)
    assert seqs(opened(bench)) == []


def test_second_connection_takes_over_from_one_that_is_being_opened() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)), peer="first")
    effects = bench.subscribe("audit", peer="second")
    [ended, begun] = told(effects)
    assert isinstance(ended, Unsubscribed)
    assert ended.code == Code.ABORTED
    assert isinstance(begun, Subscribed)
    assert opened(bench) == []
    assert set(bench.dispatch.queues) == {("second", 1)}


def test_same_number_is_refused_while_it_is_being_opened() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)))
    [refused] = told(bench.subscribe("other"))
    assert isinstance(refused, Unsubscribed)
    assert refused.code == Code.ALREADY_EXISTS


@pytest.mark.parametrize("message", [PeerLeft(), Unsubscribe(1)])
def test_subscription_that_ends_while_it_is_being_opened_is_gone(message: PeerLeft | Unsubscribe) -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)))
    assert [key for key, *_ in bench.dispatch.subscribers.all()] == [("p", 1)]
    bench.give(message)
    assert opened(bench) == []
    assert list(bench.dispatch.subscribers.all()) == []
    assert seqs(bench.subscribe("audit", peer="again")) == list(range(1, 11))


def test_name_that_is_forgotten_meanwhile_is_refused() -> None:
    bench = away()
    bench.subscribe("audit", held=held(*range(10)))
    bench.journal.stage_record(SubscriberClosed("audit"))
    [refused] = told(opened(bench))
    assert isinstance(refused, Unsubscribed)
    assert (refused.code, refused.text) == (Code.ABORTED, "subscriber 'audit' was forgotten")


def test_series_from_before_a_subscriber_are_left_out_after_several_steps() -> None:
    bench = Bench()
    for number in range(10):
        bench.publish(2, topic=f"plant/{number}", source=bytes([number]) * 16)
    bench.subscribe("audit")
    opened(bench)
    bench.publish(1, topic="plant/7", source=bytes([7]) * 16)
    assert seqs(bench.publish(3, topic="plant/7", source=bytes([7]) * 16)) == [3]


def test_too_many_ranges_are_ignored_and_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "RANGES_MAX", 3)
    bench = away()
    bench.give(Holding(1, held(*range(10))))
    assert seqs(bench.subscribe("audit")) == list(range(4, 11))
    for number in range(10):
        bench.say(Outcome.ACCEPTED, number + 1, topic=f"plant/{number}")
    accepted = {series[0]: ends for series, ends in bench.journal.ledger.accounts["audit"].ends.items()}
    assert accepted["plant/0"] == {FinalOutcome.ACCEPTED: SeqSet.from_ranges([(1, 2)])}
    assert len(accepted) == 10
