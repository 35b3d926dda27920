"""Rounds of alignment: only what is lacking is fetched, and it goes where it belongs."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.recovery import alignment
from reknit.protocol.recovery.alignment import AskBuckets, AskDigest, AskSpans, Digest, HeldSpans
from reknit.protocol.recovery.cache_inputs import AskRemote, RemoteAnswered, RemoteFound, RemoteUnreachable
from reknit.protocol.recovery.holdings import Holdings
from reknit.protocol.recovery.search import SearchSettings
from reknit.protocol.replication.alignment_rounds import (
    AlignmentRounds,
    BeginRound,
    Effect,
    Input,
    PublishFetched,
    RoundEnded,
    RoundFailed,
    SaveBeside,
    Saved,
    StoreBeside,
)
from reknit.seqset import Range, SeqSet
from tests.protocol.replication.batches import ANN, BOB, SERIES, TOPIC, made

URL = "tcp://other:7440"
Holding = dict[Series, SeqSet]


def holding(**ranges: list[Range]) -> Holding:
    """What a node holds, by name of the source."""
    sources = {"ann": ANN, "bob": BOB}
    return {(TOPIC, sources[name]): SeqSet.from_ranges(found) for name, found in ranges.items()}


class Aligning:
    """The machine, on a node that holds `mine`, beside one that holds `theirs`."""

    def __init__(self, mine: Holding, theirs: Holding) -> None:
        self.mine, self.theirs = mine, theirs
        self.now = 0.0
        self.machine = AlignmentRounds(
            URL,
            "**",
            existing=lambda series: self.mine.get(series, SeqSet()),
            settings=SearchSettings(1.0, 1.0, 1000),
            interval_s=60.0,
        )

    def begin(self) -> list[Effect]:
        self.machine.begin(Holdings.of(self.mine), self.now)
        return self.machine.take_effects()

    def give(self, *messages: Input) -> list[Effect]:
        for message in messages:
            self.machine.receive(message, URL, self.now)
        return self.machine.take_effects()

    def tick(self, now: float) -> list[Effect]:
        self.now = now
        self.machine.tick(now)
        return self.machine.take_effects()

    def digest(self) -> Digest:
        return alignment.digest(Holdings.of(self.theirs), "**", hot=self.theirs)

    def found(self, ask: Effect, *batches: Batch) -> list[Effect]:
        assert isinstance(ask, AskRemote)
        answer = RemoteAnswered(ask.search, ask.number, ask.ranges, True)
        return self.give(RemoteFound(ask.search, list(batches)), answer)


def test_nothing_is_fetched_from_a_node_that_holds_the_same() -> None:
    both = holding(ann=[(1, 5)])
    aligning = Aligning(both, both)
    assert aligning.begin() == [AskDigest()]
    assert aligning.give(aligning.digest()) == [RoundEnded(True)]
    assert aligning.machine.next_deadline() is None, "nothing is scheduled"


def test_what_continues_a_series_is_published_and_what_is_older_is_stored_beside() -> None:
    aligning = Aligning(holding(ann=[(3, 5)]), holding(ann=[(1, 9)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert ask == AskRemote(URL, 1, 1, SERIES, [(1, 3), (5, 9)], 1000)
    assert aligning.found(ask, made(1, 3), made(5, 7), made(7, 9)) == [
        StoreBeside(made(1, 3)),
        PublishFetched(made(5, 7)),
        PublishFetched(made(7, 9)),
        SaveBeside(),
    ]
    assert aligning.give(Saved()) == [RoundEnded(True)]


def test_a_series_that_is_not_known_here_is_published() -> None:
    aligning = Aligning({}, holding(ann=[(4, 9)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert aligning.found(ask, made(4, 9)) == [PublishFetched(made(4, 9)), SaveBeside()]


def test_series_are_fetched_one_after_another_each_saved_before_the_next() -> None:
    aligning = Aligning({}, holding(ann=[(1, 3)], bob=[(1, 2)]))
    aligning.begin()
    [first] = aligning.give(aligning.digest())
    assert aligning.found(first, made(1, 3))[-1] == SaveBeside()
    assert aligning.give() == [], "nothing before it is saved"
    [second] = aligning.give(Saved())
    assert isinstance(second, AskRemote)
    assert second.series == (TOPIC, BOB)
    assert aligning.found(second, made(1, 2, BOB))[-1] == SaveBeside()
    assert aligning.give(Saved()) == [RoundEnded(True)]


def test_what_differs_and_did_not_change_lately_is_found_by_buckets() -> None:
    aligning = Aligning(holding(ann=[(1, 3)]), holding(ann=[(1, 5)]))
    aligning.begin()
    assert aligning.give(alignment.digest(Holdings.of(aligning.theirs), "**")) == [AskBuckets()]
    [ask] = aligning.give(alignment.buckets(Holdings.of(aligning.theirs)))
    assert isinstance(ask, AskSpans)
    spans = alignment.rows(Holdings.of(aligning.theirs), ask.buckets)
    assert isinstance(spans, HeldSpans)
    [fetch] = aligning.give(spans)
    assert isinstance(fetch, AskRemote)
    assert fetch.ranges == [(3, 5)]


def test_a_node_that_holds_other_topics_is_not_comparable() -> None:
    aligning = Aligning({}, holding(ann=[(1, 5)]))
    aligning.begin()
    assert aligning.give(alignment.digest(Holdings.of(aligning.theirs), "office/**")) == [RoundEnded(False)]


def test_a_node_that_stays_silent_is_given_up_and_the_round_ends() -> None:
    aligning = Aligning({}, holding(ann=[(1, 5)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert aligning.machine.next_deadline() == 1.0
    assert aligning.tick(1.0) == [SaveBeside()]
    assert aligning.give(Saved()) == [RoundEnded(True)]
    assert aligning.found(ask, made(1, 5)) == [], "late"


def test_a_node_that_is_away_for_a_moment_is_asked_again() -> None:
    aligning = Aligning({}, holding(ann=[(1, 5)]))
    aligning.begin()
    aligning.give(aligning.digest())
    assert aligning.give(RemoteUnreachable(1)) == []
    due = aligning.machine.next_deadline()
    assert due is not None
    [again] = aligning.tick(due)
    assert aligning.found(again, made(1, 5)) == [PublishFetched(made(1, 5)), SaveBeside()]


def test_rounds_are_due_at_once_then_after_the_interval_whether_they_fail_or_not() -> None:
    both = holding(ann=[(1, 5)])
    aligning = Aligning(both, both)
    aligning.machine.schedule(5.0)
    assert aligning.machine.next_deadline() == 5.0
    assert aligning.tick(4.0) == []
    assert aligning.tick(5.0) == [BeginRound()]
    assert aligning.machine.next_deadline() is None, "one at a time"
    aligning.begin()
    aligning.now = 7.0
    aligning.give(aligning.digest())
    assert aligning.machine.next_deadline() == 67.0
    assert aligning.tick(67.0) == [BeginRound()]
    aligning.give(RoundFailed())
    assert aligning.machine.next_deadline() == 127.0


def test_a_round_that_failed_leaves_nothing_to_the_next() -> None:
    aligning = Aligning({}, holding(ann=[(1, 5)], bob=[(1, 2)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert aligning.give(RoundFailed()) == []
    assert aligning.machine.next_deadline() is None
    assert aligning.begin() == [AskDigest()]
    assert aligning.found(ask, made(1, 5)) == [], "of the round before"
    [again] = aligning.give(aligning.digest())
    assert isinstance(again, AskRemote)
    assert again.search == 2
    assert aligning.give(Saved(), RemoteUnreachable(1)) == [], "late, too"
    assert aligning.machine.next_deadline() == 1.0


def test_what_was_published_and_is_not_durable_yet_is_continued() -> None:
    aligning = Aligning(holding(ann=[(1, 3)]), holding(ann=[(1, 5)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert aligning.found(ask, made(3, 5))[0] == PublishFetched(made(3, 5))
    aligning.give(Saved())
    aligning.theirs = holding(ann=[(1, 9)])
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    assert aligning.found(ask, made(3, 5), made(5, 9)) == [PublishFetched(made(5, 9)), SaveBeside()]


def test_what_was_published_and_is_not_durable_yet_is_not_stored_beside_the_journal() -> None:
    """Seed 10020: it was there when the node crashed, so nobody fetched it again, and subscribers never got it."""
    aligning = Aligning({}, holding(ann=[(1, 4)]))
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    aligning.found(ask, made(1, 4))
    aligning.give(Saved())
    aligning.theirs = holding(ann=[(1, 6)])
    aligning.begin()
    [ask] = aligning.give(aligning.digest())
    [published, saves] = aligning.found(ask, made(1, 3), made(3, 6))
    assert isinstance(published, PublishFetched)
    assert (published.batch.first, published.batch.stop) == (4, 6)
    assert saves == SaveBeside()
