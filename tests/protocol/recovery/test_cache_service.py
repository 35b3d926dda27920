"""A node's answers to recovery requests, and its searches in other caches."""

from __future__ import annotations

from functools import cache

from reknit.batch import Batch
from reknit.outcome import Code
from reknit.protocol.effects import Send
from reknit.protocol.machine import PeerLeft
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Dismiss,
    Effect,
    Listed,
    ListHeld,
    LookedUp,
    LookUp,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
    SendFound,
    SurveyRemote,
)
from reknit.protocol.recovery.cache_service import CacheService
from reknit.protocol.recovery.search import SearchSettings
from reknit.seqset import Range
from reknit.wire.codec import Frames
from reknit.wire.recovery import Offer, Recover, Recovered, Span, Survey, Surveyed
from tests.protocol.recovery.world import ANN, BOB, TOPIC

SERIES = (TOPIC, ANN)
READER, NEAR, FAR = 1, 2, "tcp://far:7440"
SETTINGS = SearchSettings(timeout_s=1.0, patience_s=1.0, bytes_max=1000)


@cache
def made(first: int, stop: int) -> Batch:
    return Batch.build(ANN, TOPIC, first, [b"x"] * (stop - first), 0)


def request(start: int, stop: int, id_: int = 7, deep: bool = True) -> Recover:
    return Recover(id_, TOPIC, ANN, [(start, stop)], 500, deep)


def service(*offers: int, remote: bool = False) -> CacheService:
    machine = CacheService(SETTINGS)
    for peer in offers:
        machine.receive(Offer(TOPIC), peer, 0.0)
    if remote:
        machine.add_remote(FAR)
    return machine


def asked(machine: CacheService, message: Recover, *held: Batch, now: float = 0.0) -> list[Effect]:
    """The effects of a request, where the node holds these batches."""
    machine.receive(message, READER, now)
    [look_up] = machine.take_effects()
    assert look_up == LookUp(READER, message)
    machine.receive(LookedUp(message, list(held), list(message.ranges)), READER, now)
    return machine.take_effects()


def reply(covered: list[Range], *batches: Batch, is_last: bool = True, id_: int = 7) -> SendFound:
    size = sum(batch.head.length for batch in batches)
    return SendFound(READER, Recovered(id_, size, covered, is_last), list(batches))


def frames(*batches: Batch) -> Frames:
    return Frames(b"".join(bytes(batch.data) for batch in batches), [batch.head for batch in batches])


def test_a_request_that_the_journal_answers_is_asked_of_nobody_else() -> None:
    machine = service(NEAR, remote=True)
    assert asked(machine, request(1, 4), made(1, 4)) == [reply([(1, 4)], made(1, 4))]
    assert machine.questions == 1
    assert machine.next_deadline() is None


def test_a_request_is_bounded_by_what_the_node_gives_at_once() -> None:
    machine = service()
    machine.receive(Recover(7, TOPIC, ANN, [(1, 4)], 1 << 30), READER, 0.0)
    assert [effect.request.bytes_max for effect in machine.take_effects() if isinstance(effect, LookUp)] == [
        SETTINGS.bytes_max
    ]


def test_what_the_node_lacks_is_asked_of_the_peer_that_offers_it_then_of_the_further_node() -> None:
    machine = service(NEAR, remote=True)
    assert asked(machine, request(1, 9), made(1, 4)) == [
        reply([(1, 4)], made(1, 4), is_last=False),
        Send(NEAR, Recover(1, TOPIC, ANN, [(4, 9)], 1000, False)),
    ]
    machine.receive(Recovered(1, made(4, 6).head.length, [(4, 9)]), NEAR, 0.1)
    assert machine.take_frames(frames(made(4, 6)), NEAR, 0.1) is None
    found = made(4, 6).cut(4, 6)
    [passed_on, ask] = machine.take_effects()
    assert isinstance(passed_on, SendFound)
    assert (passed_on.reply, [bytes(one.data) for one in passed_on.batches]) == (
        Recovered(7, found.head.length, [(4, 6)], is_last=False),
        [bytes(found.data)],
    )
    assert ask == AskRemote(FAR, 1, 2, SERIES, [(6, 9)], 1000)
    machine.receive(RemoteFound(1, [made(6, 7)]), FAR, 0.2)
    machine.receive(RemoteAnswered(1, 2, [(6, 9)], True), FAR, 0.2)
    [passed_on, last] = machine.take_effects()
    assert isinstance(passed_on, SendFound)
    assert passed_on.reply.covered == [(6, 7)]
    assert last == Send(READER, Recovered(7, 0, [(7, 9)]))
    assert machine.next_deadline() is None


def test_a_shallow_request_is_not_passed_on() -> None:
    assert asked(service(NEAR), request(1, 4, deep=False)) == [reply([(1, 4)])]


def test_the_peer_that_asks_is_not_asked() -> None:
    assert asked(service(READER), request(1, 4)) == [reply([(1, 4)])]


def test_an_offer_of_another_source_or_topic_serves_nobody_and_one_taken_back_neither() -> None:
    machine = service()
    machine.receive(Offer(TOPIC, BOB), NEAR, 0.0)
    machine.receive(Offer("office/**"), NEAR, 0.0)
    machine.receive(Offer(TOPIC, ANN), NEAR, 0.0)
    machine.receive(Offer(TOPIC, ANN, is_on=False), NEAR, 0.0)
    assert asked(machine, request(1, 4)) == [reply([(1, 4)])]


def test_a_silent_cache_is_passed_over_for_the_next_one() -> None:
    machine = service(NEAR, remote=True)
    asked(machine, request(1, 4))
    assert machine.next_deadline() == 1.0
    machine.tick(0.9)
    assert machine.take_effects() == []
    machine.tick(1.0)
    assert machine.take_effects() == [AskRemote(FAR, 1, 2, SERIES, [(1, 4)], 1000)]


def test_a_peer_is_answered_when_all_caches_stay_silent() -> None:
    machine = service(remote=True)
    asked(machine, request(1, 4))
    machine.tick(1.0)
    assert machine.take_effects() == [Send(READER, Recovered(7, 0, [(1, 4)]))]
    assert machine.next_deadline() is None


def test_a_cache_that_leaves_is_passed_over_at_once() -> None:
    machine = service(NEAR, remote=True)
    asked(machine, request(1, 4))
    machine.receive(PeerLeft(), NEAR, 0.1)
    assert machine.take_effects() == [AskRemote(FAR, 1, 2, SERIES, [(1, 4)], 1000)]


def test_an_unreachable_node_is_asked_again_after_a_back_off() -> None:
    machine = service(remote=True)
    asked(machine, request(1, 4))
    machine.receive(RemoteUnreachable(1), FAR, 0.1)
    assert machine.take_effects() == []
    due = machine.next_deadline()
    assert due is not None
    assert 0.1 < due < 1.0
    machine.tick(due)
    assert machine.take_effects() == [AskRemote(FAR, 1, 2, SERIES, [(1, 4)], 1000)]


def test_late_replies_to_a_peer_that_left_are_ignored() -> None:
    machine = service(NEAR, remote=True)
    asked(machine, request(1, 4))
    machine.receive(PeerLeft(), READER, 0.1)
    assert machine.next_deadline() is None
    machine.receive(Recovered(1, made(1, 4).head.length, [(1, 4)]), NEAR, 0.2)
    assert machine.take_frames(frames(made(1, 4)), NEAR, 0.2) is None, (
        "the batches are a reply, not published"
    )
    machine.receive(RemoteFound(1, [made(1, 4)]), FAR, 0.2)
    assert machine.take_effects() == []


def test_batches_of_a_peer_that_were_not_announced_are_published() -> None:
    published = frames(made(1, 4))
    assert service(NEAR).take_frames(published, NEAR, 0.0) is published
    assert service().take_frames(published, NEAR, 0.0) is published


def test_a_survey_joins_what_all_caches_hold() -> None:
    machine = service(NEAR, remote=True)
    survey = Survey(7, TOPIC, 5.0)
    machine.receive(survey, READER, 0.0)
    assert machine.take_effects() == [ListHeld(READER, survey)]
    own, near, far = (Span(TOPIC, ANN, [(start, start + 2)], start + 1) for start in (1, 5, 9))
    machine.receive(Listed(survey, [own]), READER, 0.0)
    assert machine.take_effects() == [
        Send(READER, Surveyed(7, [own], is_last=False)),
        Send(NEAR, Survey(1, TOPIC, 5.0, False)),
        SurveyRemote(FAR, 1, TOPIC, 5.0),
    ]
    machine.receive(Surveyed(1, [near]), NEAR, 0.1)
    machine.receive(RemoteListed(1, [far], True), FAR, 0.1)
    assert machine.take_effects() == [
        Send(READER, Surveyed(7, [near], is_last=False)),
        Send(READER, Surveyed(7, [far], is_last=False)),
        Send(READER, Surveyed(7, [])),
    ]
    assert machine.next_deadline() is None


def test_a_survey_does_not_wait_for_a_silent_cache() -> None:
    machine = service(NEAR)
    survey = Survey(7, TOPIC)
    machine.receive(survey, READER, 0.0)
    machine.receive(Listed(survey, []), READER, 0.0)
    machine.take_effects()
    assert machine.next_deadline() == 1.0
    machine.tick(0.9)
    assert machine.take_effects() == []
    machine.tick(1.0)
    assert machine.take_effects() == [Send(READER, Surveyed(7, []))]


def test_a_peer_that_sends_an_invalid_pattern_is_dismissed() -> None:
    machine = service(NEAR)
    machine.receive(Offer("a//b"), NEAR, 0.0)
    machine.receive(Survey(7, "a//b"), NEAR, 0.0)
    machine.receive(LookedUp(Recover(7, "a//b", ANN, [(1, 2)], 9), [], [(1, 2)]), READER, 0.0)
    effects = machine.take_effects()
    assert [(effect.peer, effect.code) for effect in effects if isinstance(effect, Dismiss)] == [
        (NEAR, Code.INVALID_ARGUMENT),
        (NEAR, Code.INVALID_ARGUMENT),
        (READER, Code.INVALID_ARGUMENT),
    ]
    assert len(effects) == 3
