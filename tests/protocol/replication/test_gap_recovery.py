"""Gaps at a target: filled in order, lost only when they are denied, never because nobody answers."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.protocol.recovery.cache_inputs import AskRemote, RemoteAnswered, RemoteFound, RemoteUnreachable
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.gap_recovery import Effect, FillGap, GapRecovery
from reknit.seqset import Range
from tests.protocol.replication.batches import BOB, SERIES, bounds, made

URL = "tcp://origin:7440"


class Origin:
    """The machine, and the node that it asks."""

    def __init__(self) -> None:
        self.machine = GapRecovery(URL, timeout_s=1.0, bytes_max=1000)
        self.now = 0.0

    def recover(self, start: int, stop: int) -> list[Effect]:
        self.machine.recover(Gap(SERIES, start, stop), self.now)
        return self.machine.take_effects()

    def answer(self, ask: Effect, covered: list[Range], *batches: Batch) -> list[Effect]:
        assert isinstance(ask, AskRemote)
        if batches:
            self.machine.receive(RemoteFound(ask.search, list(batches)), URL, self.now)
        self.machine.receive(RemoteAnswered(ask.search, ask.number, covered, True), URL, self.now)
        return self.machine.take_effects()

    def wait(self) -> list[Effect]:
        due = self.machine.next_deadline()
        assert due is not None
        self.now = due
        self.machine.tick(due)
        return self.machine.take_effects()


def filled(effects: list[Effect]) -> list[tuple[int, list[Range]]]:
    return [(one.gap.start, bounds(one.found)) for one in effects if isinstance(one, FillGap)]


def test_a_gap_is_asked_for_once_and_filled() -> None:
    origin = Origin()
    [ask] = origin.recover(3, 6)
    assert ask == AskRemote(URL, 1, 1, SERIES, [(3, 6)], 1000)
    assert origin.recover(3, 6) == [], "the same gap"
    effects = origin.answer(ask, [(3, 6)], made(1, 5), made(5, 9))
    assert filled(effects) == [(3, [(3, 5), (5, 6)])]
    assert len(effects) == 1
    assert origin.machine.next_deadline() is None


def test_what_is_denied_is_lost_before_what_was_found_or_altogether() -> None:
    origin = Origin()
    [ask] = origin.recover(3, 6)
    assert filled(origin.answer(ask, [(3, 6)], made(5, 6))) == [(3, [(5, 6)])]
    [ask] = origin.recover(7, 9)
    assert filled(origin.answer(ask, [(7, 9)])) == [(7, [])]
    assert origin.machine.next_deadline() is None


def test_a_hole_behind_what_was_found_is_lost_when_the_target_has_come_to_it() -> None:
    origin = Origin()
    [ask] = origin.recover(3, 9)
    assert filled(origin.answer(ask, [(3, 9)], made(3, 5), made(7, 9))) == [(3, [(3, 5)])]
    assert origin.answer(ask, []) == [], "the target has not taken what was found yet"
    assert filled(origin.recover(5, 9)) == [(5, [(7, 9)])], "what was found is not asked for again"
    assert origin.machine.next_deadline() is None


def test_the_rest_of_a_large_gap_is_asked_for_when_the_target_expects_it() -> None:
    origin = Origin()
    [first] = origin.recover(3, 20)
    [fill, second] = origin.answer(first, [(3, 8)], made(3, 8))[::-1]
    assert filled([fill]) == [(3, [(3, 8)])]
    assert isinstance(second, AskRemote)
    assert second.ranges == [(8, 20)]
    assert filled(origin.answer(second, [(8, 12)], made(8, 12))) == [(8, [(8, 12)])]
    [third] = origin.recover(12, 20)
    assert isinstance(third, AskRemote)
    assert third.ranges == [(12, 20)]


def test_an_answer_that_denies_nothing_loses_nothing() -> None:
    origin = Origin()
    [ask] = origin.recover(3, 6)
    assert origin.answer(ask, []) == []
    [again] = origin.wait()
    assert isinstance(again, AskRemote)
    assert filled(origin.answer(again, [(3, 6)], made(3, 6))) == [(3, [(3, 6)])]


def test_a_node_that_is_away_or_silent_is_asked_again_for_ever() -> None:
    origin = Origin()
    origin.recover(3, 6)
    for _ in range(50):
        origin.machine.receive(RemoteUnreachable(1), URL, origin.now)
        assert origin.machine.take_effects() == []
        [ask] = origin.wait()
        assert isinstance(ask, AskRemote)
    assert origin.now > 100.0
    assert origin.wait() == [], "silent"
    [ask] = origin.wait()
    assert filled(origin.answer(ask, [(3, 6)], made(3, 6))) == [(3, [(3, 6)])]


def test_a_target_that_forgot_what_it_had_gets_it_again() -> None:
    origin = Origin()
    [first] = origin.recover(3, 9)
    origin.answer(first, [(3, 5)], made(3, 5))
    [again] = origin.recover(1, 9)
    assert again == AskRemote(URL, 2, 1, SERIES, [(1, 9)], 1000)
    assert origin.answer(first, [(5, 9)], made(5, 9)) == [], "late"


def test_events_of_another_series_are_not_filled_in() -> None:
    origin = Origin()
    [ask] = origin.recover(3, 6)
    assert filled(origin.answer(ask, [(3, 6)], made(3, 6, BOB))) == [(3, [])]
