"""Crashes of members of a queue: an event that kills one member after the other ends as a dead letter, and no other."""

from __future__ import annotations

from reknit.attempts import AttemptCount
from reknit.outcome import FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import DeadLetter, DeliverRuns, Redeliver
from reknit.protocol.machine import PeerLeft
from reknit.wire.messages import Unsubscribe
from tests.protocol.dispatch.bench import STREAM, Bench, letters, ranges, seqs

NAME = "queue/work"
LIMIT = 3


class Workers:
    """Processes by their names, each a member of the queue over a connection of its own. Time passes with each step."""

    def __init__(self, *names: str, bench: Bench | None = None, now: float = 0.0) -> None:
        self.bench = bench or Bench(crash_attempts_max=LIMIT)
        self.now = now
        self._said: dict[str, int] = {}
        self.inbox: dict[str, list[int]] = {}
        self.letters: list[tuple[int, int, str]] = []
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """A process becomes a member; of a process that was one before, its name says so."""
        self.inbox[name] = []
        self._said[name] = 0
        self._take(self.bench.subscribe(peer=name, queue="work", process=name, position=0, now=self._later()))
        self._take(self.bench.tick(self._later()))

    def lose(self, *names: str) -> None:
        """The connections of these processes are lost, one after the other."""
        for name in names:
            self.inbox.pop(name)
            self._take(self.bench.give(PeerLeft(is_abrupt=True), name, self._later()))
        self._take(self.bench.tick(self._later()))

    def publish(self, first: int, count: int) -> None:
        self._take(self.bench.publish(first, count, now=self._later()))

    def say(self, name: str, outcome: Outcome, seq: int) -> None:
        self.inbox[name].remove(seq)
        self.bench.settled = self._said[name]
        self._said[name] += 1
        self._take(self.bench.say(outcome, seq, now=self._later(), peer=name))

    def wait(self) -> None:
        """Every back-off is over."""
        self._take(self.bench.tick(self._later()))

    def _later(self) -> float:
        self.now += 100.0
        return self.now

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, DeliverRuns | Redeliver):
                self.inbox[str(effect.peer)] += seqs([effect])
        self.letters += letters(effects)

    def holder(self, seq: int) -> str:
        [found] = [name for name, events in self.inbox.items() if seq in events]
        return found

    def tally(self, seq: int) -> AttemptCount:
        tallies = self.bench.journal.ledger.accounts[NAME].tallies
        return tallies.get(STREAM, {}).get(seq, AttemptCount())


def test_event_that_kills_every_member_is_a_dead_letter_and_all_others_are_accepted() -> None:
    """Four members share 400 events, and each dies of the 70th. A new process starts after each death."""
    workers = Workers("0", "1", "2", "3")
    workers.publish(1, 400)
    handled: set[int] = set()
    deaths = 0
    while any(workers.inbox.values()):
        name, seq = next((name, events[0]) for name, events in workers.inbox.items() if events)
        if seq != 70:
            handled.add(seq)
            workers.say(name, Outcome.ACCEPTED, seq)
            continue
        deaths += 1
        assert deaths < 20, "it kills for ever"
        workers.lose(name)
        workers.start(f"{deaths + 3}")
    assert handled == set(range(1, 401)) - {70}
    assert workers.letters == [(70, 71, Reason.CRASHED)]
    assert workers.bench.ends(NAME)[FinalOutcome.DEAD_LETTERED] == ranges((70, 71))
    assert deaths <= 3 + LIMIT, (
        "a few to find it, and one more than the limit: the last count needs a new process"
    )


def test_neighbours_of_what_a_member_died_of_go_out_a_few_at_a_time() -> None:
    workers = Workers("a", "b")
    workers.publish(1, 32)
    workers.lose("a")
    assert len(workers.inbox["b"]) == 16, "it has as many as before, and gets no suspect yet"
    for seq in list(workers.inbox["b"]):
        workers.say("b", Outcome.ACCEPTED, seq)
        assert len(workers.inbox["b"]) <= 16
    assert len(workers.inbox["b"]) == 1
    while workers.inbox["b"][0] <= 16 and len(workers.inbox["b"]) == 1:
        workers.say("b", Outcome.ACCEPTED, workers.inbox["b"][0])
        if not workers.inbox["b"]:
            break
    workers.publish(33, 8)
    assert len(workers.inbox["b"]) == 8, "all suspects have ended"


def test_members_that_come_back_did_not_crash() -> None:
    """The network of the node fails: all members lose their connections, each with one event."""
    workers = Workers("a", "b", "c")
    workers.publish(1, 3)
    for _ in range(LIMIT + 2):
        workers.lose("a", "b", "c")
        for name in "cab":
            workers.start(name)
    assert not workers.letters
    assert [workers.tally(seq).crashed for seq in (1, 2, 3)] == [0, 0, 0]


def test_member_that_leaves_did_not_crash() -> None:
    workers = Workers("a", "b")
    workers.publish(1, 1)
    holder = workers.holder(1)
    workers.inbox[holder].clear()
    workers._take(workers.bench.give(Unsubscribe(1), holder, workers._later()))
    workers.start("c")
    assert workers.tally(1).crashed == 0


def test_crash_is_counted_when_nobody_has_the_event() -> None:
    """Another member has it by then, and what that says about it must still be about its last attempt."""
    workers = Workers("a", "b")
    workers.publish(1, 1)
    workers.lose(workers.holder(1))
    workers.start("c")
    assert workers.tally(1).crashed == 0
    workers.say(workers.holder(1), Outcome.FAILED, 1)
    assert workers.tally(1).failed == 1
    workers.start("d")
    assert workers.tally(1).crashed == 1
    workers.wait()
    workers.say(workers.holder(1), Outcome.FAILED, 1)
    assert (workers.tally(1).failed, workers.tally(1).crashed) == (2, 1), (
        "a failure keeps the count of crashes"
    )


def test_crashes_are_counted_when_all_members_are_gone_and_over_a_restart_of_the_node() -> None:
    workers = Workers("0")
    workers.publish(1, 1)
    for death in range(LIMIT - 1):
        workers.lose(f"{death}")
        workers.start(f"{death + 1}")
    assert workers.tally(1).crashed == LIMIT - 1
    again = Workers("5", bench=workers.bench.restart(crash_attempts_max=LIMIT), now=workers.now)
    assert again.inbox == {"5": [1]}
    again.lose("5")
    again.start("6")
    assert again.letters == [(1, 2, Reason.CRASHED)]
    assert again.inbox == {"6": []}


def test_letter_says_what_happened() -> None:
    bench = Bench(crash_attempts_max=1)
    bench.subscribe(peer="a", queue="work", process="a", position=0)
    bench.publish(1)
    bench.give(PeerLeft(is_abrupt=True), "a", 100.0)
    effects = bench.subscribe(peer="b", queue="work", process="b", now=200.0)
    [letter] = [effect for effect in effects if isinstance(effect, DeadLetter)]
    assert letter.text == "the process of its subscriber ended 1 times while it had only this event"
    assert letter.subscriber == NAME
