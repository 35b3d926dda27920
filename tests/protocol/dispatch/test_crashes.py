"""Crashes of durable subscribers: only an event that was alone with a process that died is blamed for it."""

from __future__ import annotations

from reknit.attempts import AttemptCount
from reknit.config import TopicSettings
from reknit.outcome import Code, FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import DeadLetter
from reknit.protocol.machine import PeerLeft
from reknit.topic import Pattern
from reknit.wire.messages import Held, Unsubscribe
from tests.protocol.dispatch.bench import SOURCE, STREAM, Bench, letters, ranges, seqs

NAME = "audit"


class Worker:
    """A durable subscriber that runs in one process after the other."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.process = 0
        self.now = 0.0

    def start(self, **fields: object) -> list[Effect]:
        """Another process starts, when every back-off is over; returns the effects."""
        self.process += 1
        self.bench.settled = 0
        self.now += 100.0
        effects = self.bench.subscribe(NAME, process=f"{self.process}", now=self.now, **fields)
        return effects + self.bench.tick(self.now)

    def crash(self) -> None:
        """The process dies."""
        self.bench.give(PeerLeft(is_abrupt=True), now=self.now)

    def crash_and_start(self) -> list[Effect]:
        self.crash()
        return self.start()

    def tally(self, seq: int) -> AttemptCount:
        tallies = self.bench.journal.ledger.accounts[NAME].tallies
        return tallies.get(STREAM, {}).get(seq, AttemptCount())


def worker(count: int, **rules: object) -> Worker:
    """A worker with so many events."""
    made = Worker(Bench(**{"crash_attempts_max": 3, **rules}))  # type: ignore[arg-type]
    made.start()
    made.bench.publish(1, count)
    return made


def test_event_that_kills_its_subscriber_is_a_dead_letter() -> None:
    one = worker(1)
    assert letters(one.crash_and_start()) == []
    assert letters(one.crash_and_start()) == []
    assert one.tally(1).crashed == 2
    [letter] = [effect for effect in one.crash_and_start() if isinstance(effect, DeadLetter)]
    assert (letter.reason, letter.code, letter.attempts) == (Reason.CRASHED, Code.ABORTED, 3)
    assert letter.text == "the process of its subscriber ended 3 times while it had only this event"
    assert [one.outcome for one in letter.tries] == [Outcome.CRASHED] * 3
    assert one.bench.ends(NAME) == {FinalOutcome.DEAD_LETTERED: ranges((1, 2))}


def test_event_says_which_attempt_it_is_after_a_crash() -> None:
    one = worker(1)
    [again] = [effect.attempt for effect in one.crash_and_start() if hasattr(effect, "attempt")]
    assert again == 2


def test_neighbours_of_a_lethal_event_are_never_blamed() -> None:
    """300 events are with the subscriber, and it dies of the 200th: every other one is accepted."""
    one = worker(300)
    handled: set[int] = set()
    died = 0
    todo = list(range(1, 301))
    while died < 20:
        effects: list[Effect] = []
        while todo and todo[0] != 200:
            handled.add(todo[0])
            effects = one.bench.say(Outcome.ACCEPTED, todo[0], now=one.now)
            todo = todo[1:] + seqs(effects)
        if not todo:
            break
        died += 1
        effects = one.crash_and_start()
        todo = seqs(effects)
        if letters(effects):
            assert letters(effects) == [(200, 201, Reason.CRASHED)]
    assert handled == set(range(1, 301)) - {200}
    assert one.bench.ends(NAME)[FinalOutcome.DEAD_LETTERED] == ranges((200, 201))
    assert died <= 5, "two crashes to find it, three to be sure"


def test_each_crash_leaves_fewer_suspects() -> None:
    one = worker(4000)
    assert [len(seqs(one.crash_and_start())) for _ in range(4)] == [250, 15, 1, 1]


def test_one_at_a_time_ends_with_the_suspects() -> None:
    one = worker(4)
    assert seqs(one.crash_and_start()) == [1]
    one.bench.publish(5, 3)
    assert seqs(one.bench.say(Outcome.ACCEPTED, 1)) == [2]
    assert seqs(one.bench.say(Outcome.ACCEPTED, 2)) == [3]
    assert seqs(one.bench.say(Outcome.ACCEPTED, 3)) == [4]
    assert seqs(one.bench.say(Outcome.ACCEPTED, 4)) == [5, 6, 7]


def test_process_that_lost_its_connection_did_not_crash() -> None:
    """A flaky network is no reason to blame an event, whether its delivery arrived or not."""
    one = worker(1)
    for held in ([Held("plant/a", SOURCE, 1, 2)], []):
        one.bench.give(PeerLeft(is_abrupt=True))
        one.bench.subscribe(NAME, process="1", held=held)
        assert one.tally(1) == AttemptCount()


def test_subscriber_that_leaves_did_not_crash() -> None:
    one = worker(1)
    one.bench.give(Unsubscribe(1))
    one.crash_and_start()
    one.bench.give(PeerLeft())  # its session said goodbye, or the node closed the connection
    one.start()
    assert one.tally(1) == AttemptCount()


def test_crash_without_an_event_blames_none() -> None:
    one = worker(1)
    one.bench.say(Outcome.ACCEPTED, 1)
    one.crash_and_start()
    one.bench.publish(2)
    assert one.tally(2) == AttemptCount()


def test_process_that_is_replaced_before_the_node_notices_its_crash() -> None:
    """The count comes late: when the next process subscribes. Until then the event is alone all the same."""
    one = worker(2)
    one.bench.subscribe(NAME, peer="q", process="2", now=200.0)
    assert one.tally(1) == AttemptCount(), "both processes may be running"
    one.bench.give(PeerLeft(is_abrupt=True), peer="p", now=201.0)
    one.bench.subscribe(NAME, peer="r", process="3", now=300.0)
    one.bench.give(PeerLeft(is_abrupt=True), peer="q", now=301.0)
    one.bench.subscribe(NAME, peer="s", process="4", now=400.0)
    assert one.tally(1).crashed == 1


def test_process_that_gives_its_name_to_another_did_not_crash() -> None:
    one = worker(1)
    one.bench.subscribe(NAME, peer="q", process="2", now=200.0)
    one.bench.give(PeerLeft(), peer="p", now=201.0)
    one.bench.subscribe(NAME, peer="r", process="2", now=300.0)
    assert one.tally(1) == AttemptCount()


def test_crashes_are_counted_across_restarts_of_the_node() -> None:
    one = worker(2)
    assert seqs(one.crash_and_start()) == [1]
    assert seqs(one.crash_and_start()) == [1]
    one.bench = one.bench.restart(crash_attempts_max=3)
    assert seqs(one.start()) == [1], "it is still alone"
    assert letters(one.crash_and_start()) == []
    assert letters(one.crash_and_start()) == [(1, 2, Reason.CRASHED)]


def test_gateways_relays_and_unknown_processes_are_not_blamed() -> None:
    for name in ("amqp/a/b", "relay/x", "route/x"):
        bench = Bench(crash_attempts_max=1)
        bench.subscribe(name, process="1")
        bench.publish(1)
        bench.give(PeerLeft(is_abrupt=True))
        assert letters(bench.subscribe(name, process="2")) == []
    bench = Bench(crash_attempts_max=1)
    bench.subscribe(NAME)
    bench.publish(1)
    bench.give(PeerLeft(is_abrupt=True))
    assert letters(bench.subscribe(NAME, process="2")) == []


def test_without_a_limit_crashes_are_not_counted() -> None:
    one = worker(1, crash_attempts_max=0)
    for _ in range(9):
        assert seqs(one.crash_and_start()) == [1]
    assert one.tally(1) == AttemptCount()


def test_event_backs_off_after_a_crash_and_others_go_first() -> None:
    one = worker(1)
    one.crash()
    one.now -= 100.0  # the next process starts at once
    assert seqs(one.start()) == []
    assert seqs(one.bench.publish(2, 2, now=one.now)) == [2], "one at a time"
    one.bench.tick(one.now + 1.0)
    assert seqs(one.bench.say(Outcome.ACCEPTED, 2, now=one.now + 1.0)) == [1]


def test_process_that_lost_a_lease_may_have_died_of_that_event() -> None:
    """Its first event was taken back, but nobody knows whether it stopped processing it."""
    one = worker(1, lease_s=10.0)
    one.bench.tick(one.now + 20.0)
    assert one.tally(1).failed == 1
    one.now += 60.0
    one.bench.tick(one.now)
    one.crash_and_start()
    assert one.tally(1).crashed == 0


def test_ordered_event_frees_its_key_when_it_is_a_dead_letter() -> None:
    rule = TopicSettings(pattern=Pattern("plant/**"), order="source", attempts_max=9)
    one = worker(3, topics=[rule])
    for _ in range(3):
        assert seqs(one.crash_and_start()) == [1]
    assert seqs(one.crash_and_start()) == [2, 3]
