"""Queues with members: each event is with one of them at a time, and goes to another one if that one does not end it."""

from __future__ import annotations

from typing import Any

import pytest

from reknit.batch import Batch
from reknit.config import TopicSettings
from reknit.entries import Removed
from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.anycast.window import FIRST, PATIENCE_S
from reknit.protocol.dispatch.inputs import JournalDamaged, OpenSubscription, PeerBlocked
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import DeliverRuns, Redeliver, Send
from reknit.protocol.machine import PeerLeft
from reknit.topic import Pattern
from reknit.wire.messages import (
    Credit,
    Lost,
    Revoked,
    Settled,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from tests.protocol.dispatch.bench import SOURCE, STREAM, Bench, ranges, seqs

NAME = "queue/work"


class QueueBench(Bench):
    """Members by letters: each is a peer with one subscription. It knows who holds what."""

    def __init__(self, members: str = "ab", order: str = "", **rules: object) -> None:
        super().__init__(**rules)  # type: ignore[arg-type]
        self.order = order
        self.said: list[Effect] = []
        self.numbers_of: dict[str, int] = {}
        for member in members:
            self.join(member)

    def join(self, member: str, **fields: object) -> dict[str, list[int]]:
        return by_peer(self.subscribe(peer=member, queue="work", order=self.order, **fields))  # type: ignore[arg-type]

    def get(self, first: int, count: int = 1, **fields: object) -> dict[str, list[int]]:
        return by_peer(self.publish(first, count, **fields))  # type: ignore[arg-type]

    def settle_as(
        self, member: str, outcome: Outcome, start: int, stop: int = 0, now: float = 0.0
    ) -> list[Effect]:
        number = self.numbers_of[member] = self.numbers_of.get(member, 0) + 1
        self.settled = number - 1
        return self.say(outcome, start, stop, now=now, peer=member)

    def leave(self, member: str, now: float = 0.0) -> list[Effect]:
        self.dispatch.receive(PeerLeft(), member, now)
        return self.perform(now)


def by_peer(effects: list[Effect]) -> dict[str, list[int]]:
    """The events that each member gets."""
    found: dict[str, list[int]] = {}
    for effect in effects:
        if isinstance(effect, DeliverRuns | Redeliver):
            found.setdefault(str(effect.peer), []).extend(seqs([effect]))
    return found


def to(member: str, effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send) and effect.peer == member]


# -- sharing


def test_members_are_told_that_they_share() -> None:
    bench = QueueBench("")
    effects = bench.subscribe(peer="a", queue="work")
    assert [one for one in to("a", effects) if isinstance(one, Subscribed)] == [
        Subscribed(1, 0, False, is_shared=True)
    ]
    (second,) = to("b", bench.subscribe(peer="b", queue="work"))
    assert second == Subscribed(1, 0, True, is_shared=True)
    assert list(bench.journal.ledger.accounts) == [NAME]


def test_burst_in_one_batch_is_shared_event_by_event() -> None:
    assert QueueBench("ab").get(1, 10) == {"a": [1, 2, 3, 4, 5], "b": [6, 7, 8, 9, 10]}


def test_single_events_go_around() -> None:
    bench = QueueBench("abc")
    assert [list(bench.get(seq)) for seq in range(1, 4)] == [["a"], ["b"], ["c"]]
    for seq, member in enumerate("abc", 1):
        bench.settle_as(member, Outcome.ACCEPTED, seq)
    assert [list(bench.get(seq)) for seq in range(4, 7)] == [["a"], ["b"], ["c"]]


def test_each_event_goes_to_one_member_until_windows_are_full_and_the_rest_waits() -> None:
    bench = QueueBench("ab")
    got = bench.get(1, 100)
    assert [len(got["a"]), len(got["b"])] == [FIRST, FIRST]
    assert sorted(got["a"] + got["b"]) == list(range(1, 2 * FIRST + 1))
    later = by_peer(bench.settle_as("a", Outcome.ACCEPTED, 1, FIRST + 1, now=0.1))
    assert list(later) == ["a"]
    assert later["a"][0] == 2 * FIRST + 1


def test_events_are_not_missed_while_nobody_has_room() -> None:
    bench = QueueBench("a")
    bench.get(1, FIRST)
    assert bench.get(FIRST + 1, 3) == {}
    assert bench.get(FIRST + 4, 3) == {}
    got = by_peer(bench.settle_as("a", Outcome.ACCEPTED, 1, FIRST + 1, now=0.001))
    assert got == {"a": list(range(FIRST + 1, FIRST + 7))}


def test_events_beyond_the_parts_of_members_without_credit_are_not_missed() -> None:
    """The rest of a run goes to a member that has room, also while the run is still on its way to all queues."""
    bench = QueueBench("")
    bench.join("a", credit=1)
    bench.join("b")
    for first in range(1, 9, 2):
        batch = Batch.build(SOURCE, "plant/a", first, [b"x"] * 2, 0)
        bench.journal.stage(bytes(batch.data), [batch.head])
    bench.keep()
    assert by_peer(bench.perform()) == {"a": [1, 2], "b": [3, 4, 5, 6, 7, 8]}


def test_other_topics_do_not_hold_up_a_queue_that_is_behind() -> None:
    bench = QueueBench("a")
    bench.get(1, FIRST + 1)
    bench.publish(1, 5, topic="car/1", source=b"o" * 16)
    assert bench.get(FIRST + 2) == {}
    assert by_peer(bench.settle_as("a", Outcome.ACCEPTED, 1, FIRST + 1)) == {"a": [FIRST + 1, FIRST + 2]}


def test_member_without_credit_or_with_a_full_connection_gets_nothing() -> None:
    bench = QueueBench("a")
    bench.join("b", credit=0)
    assert list(bench.get(1, 4)) == ["a"]
    bench.give(PeerBlocked(True), "a")
    bench.give(Credit(1, 1 << 20), "b")
    assert list(bench.get(5, 4)) == ["b"]


def test_late_member_gets_what_waits() -> None:
    bench = QueueBench("a")
    bench.get(1, FIRST + 5)
    assert bench.join("b") == {"b": list(range(FIRST + 1, FIRST + 6))}


def test_member_that_settles_many_events_together_gets_more_of_them() -> None:
    bench = QueueBench("a")
    bench.get(1, 3 * FIRST)
    assert bench.dispatch.next_deadline() == PATIENCE_S
    assert by_peer(bench.tick(PATIENCE_S)) == {"a": list(range(FIRST + 1, 2 * FIRST + 1))}


def test_queue_begins_where_its_first_member_says() -> None:
    bench = QueueBench("")
    bench.get(1, 3)
    assert bench.join("a", position=0) == {"a": [1, 2, 3]}


# -- outcomes


def test_outcome_is_confirmed_to_the_member_that_said_it_when_it_is_durable() -> None:
    bench = QueueBench("ab")
    bench.get(1, 2)
    bench.is_slow = True
    assert to("a", bench.settle_as("a", Outcome.ACCEPTED, 1)) == []
    assert to("b", bench.settle_as("b", Outcome.ACCEPTED, 2)) == []
    bench.is_slow = False
    bench.keep()
    effects = bench.perform()
    assert to("a", effects) == [Settled(1, 1)]
    assert to("b", effects) == [Settled(1, 1)]
    assert bench.ends(NAME) == {FinalOutcome.ACCEPTED: ranges((1, 3))}


def test_member_can_end_only_what_it_holds() -> None:
    bench = QueueBench("ab")
    bench.get(1, 10)
    bench.settle_as("a", Outcome.ACCEPTED, 1, 11)
    assert bench.ends(NAME) == {FinalOutcome.ACCEPTED: ranges((1, 6))}
    bench.settle_as("a", Outcome.REJECTED, 6, 11)
    assert bench.ends(NAME) == {FinalOutcome.ACCEPTED: ranges((1, 6))}


def test_released_event_goes_to_the_member_with_fewer_events() -> None:
    bench = QueueBench("ab")
    bench.get(1, 10)
    bench.settle_as("b", Outcome.ACCEPTED, 6, 11)
    bench.settle_as("a", Outcome.RELEASED, 3)
    assert by_peer(bench.tick(2.0)) == {"b": [3]}


def test_failures_at_different_members_count_together() -> None:
    bench = QueueBench("ab", attempts_max=2)
    (first,) = bench.get(1)
    bench.settle_as(first, Outcome.FAILED, 1)
    (second,) = by_peer(bench.tick(2.0))
    bench.settle_as(second, Outcome.FAILED, 1, now=2.0)
    assert bench.ends(NAME) == {FinalOutcome.DEAD_LETTERED: ranges((1, 2))}


# -- leaving


def test_what_a_member_held_goes_to_the_others_when_its_connection_is_lost() -> None:
    bench = QueueBench("abc")
    assert bench.get(1, 9)["a"] == [1, 2, 3]
    bench.settle_as("a", Outcome.ACCEPTED, 2)
    bench.leave("a")
    got = by_peer(bench.tick(2.0))
    assert sorted(got["b"] + got.get("c", [])) == [1, 3]


def test_outcome_of_a_member_that_left_does_not_end_the_event_of_another() -> None:
    bench = QueueBench("ab")
    bench.get(1)
    bench.leave("a")
    assert by_peer(bench.tick(2.0)) == {"b": [1]}
    bench.join("a")
    bench.settle_as("a", Outcome.ACCEPTED, 1)
    assert bench.ends(NAME) == {}


def test_outcome_of_a_member_that_comes_back_ends_an_event_that_nobody_has() -> None:
    bench = QueueBench("ab")
    bench.get(1)
    bench.leave("a")
    bench.join("a")
    bench.settle_as("a", Outcome.ACCEPTED, 1)
    assert bench.ends(NAME) == {FinalOutcome.ACCEPTED: ranges((1, 2))}
    assert by_peer(bench.tick(5.0)) == {}


def test_queue_outlasts_its_last_member_and_the_node() -> None:
    bench = QueueBench("a")
    bench.get(1, 4)
    bench.settle_as("a", Outcome.ACCEPTED, 2)
    bench.leave("a")
    bench.get(5)
    assert bench.dispatch.queues == {}
    again = QueueBench("", journal=bench.journal)
    assert again.join("b") == {"b": [1, 3, 4, 5]}


def test_member_that_unsubscribes_leaves_the_others_alone() -> None:
    bench = QueueBench("ab")
    bench.get(1, 2)
    assert to("a", bench.give(Unsubscribe(1), "a")) == [Unsubscribed(1)]
    assert by_peer(bench.tick(2.0)) == {"b": [1]}


def test_only_the_last_member_can_forget_a_queue() -> None:
    bench = QueueBench("ab")
    (refused,) = to("a", bench.give(Unsubscribe(1, forget=True), "a"))
    assert isinstance(refused, Unsubscribed)
    assert refused.code == Code.FAILED_PRECONDITION
    assert "queue 'work' has 1 other member:" in refused.text
    assert to("b", bench.give(Unsubscribe(1, forget=True), "b")) == [Unsubscribed(1, is_forgotten=True)]
    assert bench.journal.ledger.accounts == {}


def test_two_members_on_one_connection_leave_together() -> None:
    bench = QueueBench("a")
    bench.give(
        OpenSubscription(
            Subscribe(2, "plant/**", "", Start(), 1 << 20, queue="work"), Pattern("plant/**"), -1
        ),
        "a",
    )
    assert bench.dispatch.registry.subscription_count == 2
    assert bench.get(1, 2) == {"a": [1, 2]}
    assert by_peer(bench.leave("a")) == {}
    assert bench.dispatch.registry.subscription_count == 0


def test_other_pattern_is_refused() -> None:
    bench = QueueBench("a")
    (refused,) = to("b", bench.subscribe(peer="b", queue="work", pattern="plant/a"))
    assert isinstance(refused, Unsubscribed)
    assert "queue 'work' was opened for 'plant/**'" in refused.text


def test_second_program_with_a_durable_name_is_told_of_queues() -> None:
    bench = Bench()
    bench.subscribe("audit", peer="a")
    (ended,) = to("a", bench.subscribe("audit", peer="b"))
    assert isinstance(ended, Unsubscribed)
    assert "queue=" in ended.text


# -- leases


def test_event_that_a_member_holds_past_its_lease_goes_to_another_one() -> None:
    bench = QueueBench("ab", lease_s=10.0)
    assert bench.get(1) == {"a": [1]}
    assert to("a", bench.tick(10.0)) == [Revoked(1, *STREAM, 1, 2)]
    assert by_peer(bench.tick(12.0)) == {"b": [1]}
    bench.settle_as("a", Outcome.ACCEPTED, 1, now=12.0)
    assert bench.ends(NAME) == {}


def test_member_that_lost_a_lease_gets_one_event_at_a_time_until_it_settles_something() -> None:
    bench = QueueBench("a", lease_s=10.0)
    bench.get(1, 4)
    bench.tick(10.0)
    got = by_peer(bench.tick(12.0))
    assert [len(got["a"])] == [1]
    assert len(by_peer(bench.settle_as("a", Outcome.ACCEPTED, got["a"][0], now=12.0))["a"]) == 3


# -- order


KEYS = (
    {"order": "key"},
    {"topics": [TopicSettings(pattern=Pattern("plant/**"), order="key")]},
    {"order": "key", "topics": [TopicSettings(pattern=Pattern("plant/**"), order="source")]},
)
by_key = pytest.mark.parametrize(
    "rules", KEYS, ids=["by its members", "by its topics", "by its members first"]
)


@by_key
def test_key_is_with_one_member_at_a_time_and_other_keys_flow(rules: dict[str, Any]) -> None:
    bench = QueueBench("ab", **rules)
    got = bench.get(1, 6, columns={"key": ["x", "x", "y", "x", "y", "z"]})
    at = {seq: member for member, found in got.items() for seq in found}
    assert set(at) == {1, 2, 3, 6}, "one unit of x and of y, and z"
    assert at[1] == at[2]
    assert at[1] != at[3]


@by_key
def test_key_stays_with_its_member_and_moves_when_that_leaves(rules: dict[str, Any]) -> None:
    bench = QueueBench("ab", **rules)
    bench.get(1, 4, columns={"key": ["x", "y", "x", "x"]})
    holder = "a"
    assert by_peer(bench.settle_as(holder, Outcome.ACCEPTED, 1)) == {"a": [3, 4]}
    bench.leave("a")
    assert by_peer(bench.tick(2.0)) == {"b": [3, 4]}


@by_key
def test_event_that_is_given_back_holds_up_its_key_only(rules: dict[str, Any]) -> None:
    bench = QueueBench("ab", **rules)
    bench.get(1, 4, columns={"key": ["x", "y", "x", "y"]})
    assert by_peer(bench.settle_as("a", Outcome.RELEASED, 1)) == {}
    assert by_peer(bench.settle_as("b", Outcome.ACCEPTED, 2)) == {"b": [4]}
    got = by_peer(bench.tick(2.0))
    assert got == {"a": [1]} or got == {"b": [1]}


def test_source_is_with_one_member_at_a_time_if_its_members_say_so() -> None:
    bench = QueueBench("ab", order="source")
    assert bench.get(1, 1) == {"a": [1]}
    assert bench.get(2, 2) == {}
    assert bench.get(1, 1, source=b"o" * 16) == {"b": [1]}
    assert by_peer(bench.settle_as("a", Outcome.ACCEPTED, 1)) == {"a": [2, 3]}


def test_member_that_asks_for_another_order_is_refused_and_the_next_first_member_decides() -> None:
    bench = QueueBench("a", order="key")
    for order in ("", "source"):
        (refusal,) = to("b", bench.subscribe(peer="b", queue="work", order=order))
        assert isinstance(refusal, Unsubscribed)
        assert refusal.code == Code.FAILED_PRECONDITION
        assert refusal.text.startswith(
            f"queue 'work' has order='key', and this member asks for order={order!r}"
        )
    bench.leave("a")
    bench.subscribe(peer="b", queue="work", order="source")
    assert bench.get(1, 3, columns={"key": ["x", "y", "z"]}) == {"b": [1, 2, 3]}


def test_loss_is_told_to_one_member() -> None:
    bench = QueueBench("ab")
    bench.give(PeerBlocked(True), "a")
    bench.give(PeerBlocked(True), "b")
    bench.get(1, 3)
    effects = bench.give(JournalDamaged([Removed(*STREAM, 1, 3)]))
    lost = [one for member in "ab" for one in to(member, effects) if isinstance(one, Lost)]
    assert lost == [Lost(1, "plant/a", SOURCE, 1, 3, "damaged")]
