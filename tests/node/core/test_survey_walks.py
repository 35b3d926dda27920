"""A survey of many series is answered in parts, so that nobody waits for it."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.node.core.keepers import JournalKeeper
from reknit.node.core.survey_walks import WALKS_MAX, SurveyWalks
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.codec import Frames
from reknit.wire.recovery import Span, Survey, Surveyed
from tests.node.core.driven import PUBLISHER, SUBSCRIBER, DrivenNode

OTHER = 3
COUNT = 10


def source(number: int) -> bytes:
    return bytes([number + 1]) * 16


def filled() -> DrivenNode:
    node = DrivenNode()
    node.core.recovery.walks.step = 3
    for peer in (PUBLISHER, SUBSCRIBER, OTHER):
        node.core.joined(peer, 0.0)
    for number in range(COUNT):
        store(node, number, 1)
    return node


def store(node: DrivenNode, number: int, first: int) -> None:
    batch = Batch.build(source(number), "plant/a", first, [b"x"], time_us=0)
    node.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
    node.settle_down()


def survey(node: DrivenNode, peer: int, number: int = 1) -> None:
    node.core.recovery.receive(Survey(number, "plant/**", deep=False), peer, node.now)
    node.run()


def turn(node: DrivenNode) -> None:
    assert node.core.next_deadline() is not None
    node.now += 0.1
    node.core.tick(node.now)
    node.run()


def answers(node: DrivenNode, peer: int, number: int = 1) -> list[Surveyed]:
    return [one for one in node.heard(peer, Surveyed) if one.id == number]


def test_an_answer_comes_in_parts_and_events_that_are_stored_meanwhile_do_not_disturb_it() -> None:
    node = filled()
    survey(node, SUBSCRIBER)
    while not answers(node, SUBSCRIBER)[-1].is_last:
        store(node, COUNT + len(answers(node, SUBSCRIBER)), 1)
        store(node, COUNT - 1, 1 + len(answers(node, SUBSCRIBER)))
        turn(node)
    found = answers(node, SUBSCRIBER)
    assert [one.is_last for one in found] == [False] * (len(found) - 1) + [True]
    assert max(len(one.spans) for one in found) == 3
    spans = {span.source: span for one in found for span in one.spans}
    assert set(spans) >= {source(number) for number in range(COUNT)}
    assert spans[source(0)] == Span("plant/a", source(0), [(1, 2)], 1)


def test_peers_take_turns_with_their_surveys() -> None:
    node = filled()
    for number in range(20):
        survey(node, SUBSCRIBER, number)
    survey(node, OTHER)
    while not answers(node, OTHER)[-1].is_last:
        turn(node)
    assert sum(one.is_last for one in node.heard(SUBSCRIBER, Surveyed)) <= 2
    node.core.left(SUBSCRIBER, node.now)
    turn(node)
    assert node.core.recovery.walks.next_deadline() is None


def test_a_peer_can_not_have_any_number_of_surveys_answered_at_a_time() -> None:
    walks = SurveyWalks()
    walks.step = 1
    request = Survey(1, "plant/**")
    for _ in range(WALKS_MAX):
        assert walks.begin(1, request, iter([None] * 5)) is not None
    assert walks.begin(1, request, iter([None])) is None
    assert walks.begin(2, request, iter([None])) is not None


def test_only_recent_events_are_looked_for_if_they_are_asked_for() -> None:
    """However many there are before them: the newest are looked at first."""
    looked: list[tuple[int, int]] = []
    journal = MemoryJournal()
    for seq in range(1, 1_001):
        batch = Batch.build(source(0), "plant/a", seq, [b"x"], time_us=seq * 1_000_000)
        journal.stage(batch.data, [batch.head])
    journal.commit()
    find = journal.find

    def noted(topic: str, of: bytes, start: int, stop: int, max_bytes: int | None = None) -> object:
        looked.append((start, stop))
        return find(topic, of, start, stop, max_bytes)

    journal.find = noted  # type: ignore[method-assign, assignment]
    spans = JournalKeeper(journal, lambda: 1_000_000_000).survey(Pattern("plant/**"), 5.0)
    assert [span.ranges for span in spans] == [[(995, 1_001)]]
    assert sum(stop - start for start, stop in looked) < 200
