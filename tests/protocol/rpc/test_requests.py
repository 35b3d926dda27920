"""Requests and their responses: each request ends once, and a node answers those that nobody else answers."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reknit.address import Address
from reknit.envelope.attributes import Attributes, Kind, response_to
from reknit.envelope.ids import make_id
from reknit.outcome import Code, Reason
from reknit.protocol.rpc.open_requests import (
    CODES,
    FORWARDED_S,
    OpenRequests,
    RequestAccepted,
    RequestsDelivered,
    RequestsForwarded,
    RequestsUndeliverable,
    Respond,
    ResponseAccepted,
    answer_code,
)
from reknit.protocol.rpc.requests import (
    Requests,
    RequestSent,
    RequestsFailed,
    ResponseReceived,
    SettleRequest,
)
from tests.envelope.samples import SOUND

REQUEST = SOUND[Kind.REQUEST]
STREAM = (REQUEST.topic, b"s" * 16)


# -- the client's side


def response(id_: UUID, code: Code = Code.OK) -> ResponseReceived:
    return ResponseReceived(response_to(structs.replace(REQUEST, id=id_), make_id(7, 7), code), b"x")


def sent(requests: Requests, number: int, due: float = 10.0) -> UUID:
    id_ = make_id(1, number)
    requests.receive(RequestSent(id_, due), "client", 0.0)
    return id_


def test_the_first_response_to_its_id_settles_a_request() -> None:
    requests = Requests()
    one, two = sent(requests, 1), sent(requests, 2)
    requests.receive(response(two), "node", 1.0)
    assert requests.take_effects() == [SettleRequest(two, response(two))]
    requests.receive(response(one, Code.UNAVAILABLE), "node", 1.0)
    assert requests.take_effects() == [SettleRequest(one, response(one, Code.UNAVAILABLE))]
    assert len(requests) == 0


def test_a_duplicate_response_is_counted_and_dropped() -> None:
    requests = Requests()
    one = sent(requests, 1)
    for _ in range(3):
        requests.receive(response(one), "node", 1.0)
    assert len(requests.take_effects()) == 1
    assert (requests.duplicates, requests.late, requests.strays) == (2, 0, 0)


def test_a_response_from_another_address_is_counted_and_the_request_still_waits() -> None:
    requests, id_ = Requests(), make_id(1, 1)
    requests.receive(RequestSent(id_, 10.0, REQUEST.sink), "client", 0.0)
    true = response(id_)
    forged = structs.replace(true.attributes, source=Address.parse("//mallory/1/1/7"))
    requests.receive(ResponseReceived(forged, b"x"), "node", 1.0)
    assert (requests.take_effects(), requests.strangers, len(requests)) == ([], 1, 1)
    requests.receive(true, "node", 1.0)
    assert requests.take_effects() == [SettleRequest(id_, true)]


def test_a_late_response_is_counted_and_dropped() -> None:
    requests = Requests()
    one = sent(requests, 1, due=2.0)
    requests.tick(1.9)
    assert requests.take_effects() == []
    requests.tick(2.0)
    [settled] = requests.take_effects()
    assert isinstance(settled.answer, RequestsFailed)
    assert settled.answer.code == Code.DEADLINE_EXCEEDED
    requests.receive(response(one), "node", 2.1)
    assert requests.take_effects() == []
    assert (requests.duplicates, requests.late, requests.strays) == (0, 1, 0)


def test_a_response_to_nothing_known_is_counted_and_dropped() -> None:
    requests = Requests()
    requests.receive(response(make_id(9, 9)), "node", 0.0)
    assert (requests.take_effects(), requests.strays) == ([], 1)


def test_a_request_that_was_refused_ends_at_once_and_alone() -> None:
    requests = Requests()
    one, two = sent(requests, 1), sent(requests, 2)
    refusal = RequestsFailed([one, make_id(9, 9)], Code.PERMISSION_DENIED, "not you")
    requests.receive(refusal, "node", 0.0)
    assert requests.take_effects() == [SettleRequest(one, refusal)]
    assert len(requests) == 1
    requests.receive(response(two), "node", 0.0)
    assert len(requests.take_effects()) == 1


def test_the_deadline_is_that_of_the_first_open_request() -> None:
    requests = Requests()
    assert requests.next_deadline() is None
    one = sent(requests, 1, due=3.0)
    sent(requests, 2, due=5.0)
    assert requests.next_deadline() == 3.0
    requests.receive(response(one), "node", 0.0)
    requests.tick(0.0)
    assert requests.next_deadline() == 5.0


def test_the_memory_of_ended_requests_is_bounded() -> None:
    requests = Requests(remembered_max=2)
    ids = [sent(requests, number) for number in range(4)]
    for id_ in (*ids, *ids):
        requests.receive(response(id_), "node", 0.0)
    assert (requests.duplicates, requests.strays) == (2, 2)


@given(st.lists(st.tuples(st.sampled_from("srft"), st.integers(0, 5)), max_size=60))
def test_every_request_ends_once_after_any_inputs(steps: list[tuple[str, int]]) -> None:
    requests = Requests()
    opened: dict[UUID, int] = {}
    ended: list[UUID] = []
    now, responses = 0.0, 0
    for kind, number in steps:
        id_ = make_id(1, number)
        if kind == "s" and id_ not in opened:
            opened[id_] = number
            requests.receive(RequestSent(id_, now + number), "client", now)
        elif kind == "r":
            responses += 1
            requests.receive(response(id_), "node", now)
        elif kind == "f":
            requests.receive(RequestsFailed([id_], 7, ""), "node", now)
        else:
            now += number
            requests.tick(now)
        ended += [effect.id for effect in requests.take_effects()]
    requests.tick(now + 100.0)
    effects = requests.take_effects()
    ended += [effect.id for effect in effects]
    assert sorted(ended) == sorted(opened)
    assert len(requests) == 0
    assert requests.duplicates + requests.late + requests.strays <= responses


# -- the node's side


def ask(watch: OpenRequests, seq: int = 1, deadline: float = 5.0, is_handed: bool = False) -> Attributes:
    request = structs.replace(REQUEST, id=make_id(1, seq))
    watch.receive(RequestAccepted(request, STREAM, seq, deadline, is_handed), "client", 0.0)
    return request


def answers(watch: OpenRequests) -> list[tuple[UUID, Code]]:
    return [(effect.request.id, effect.code) for effect in watch.take_effects()]


def test_a_request_that_expires_undelivered_is_unavailable() -> None:
    watch = OpenRequests(10)
    request = ask(watch)
    watch.tick(4.9)
    assert answers(watch) == []
    watch.tick(5.0)
    [effect] = watch.take_effects()
    assert isinstance(effect, Respond)
    assert (effect.request, effect.code) == (request, Code.UNAVAILABLE)
    assert (effect.series, effect.seq) == (STREAM, 1)
    assert (len(watch), watch.next_deadline(), watch.answered) == (0, None, 1)


def test_a_delivered_request_without_an_answer_is_deadline_exceeded() -> None:
    watch = OpenRequests(10)
    one, two = ask(watch, 1), ask(watch, 2)
    watch.receive(RequestsDelivered(STREAM, 2, 3), "server", 1.0)
    watch.tick(5.0)
    assert answers(watch) == [(one.id, Code.UNAVAILABLE), (two.id, Code.DEADLINE_EXCEEDED)]


def test_a_request_maybe_delivered_before_a_restart_is_never_unavailable() -> None:
    watch = OpenRequests(10)
    one = ask(watch, is_handed=True)
    watch.tick(5.0)
    assert answers(watch) == [(one.id, Code.DEADLINE_EXCEEDED)]


def test_a_request_that_went_to_another_node_is_left_to_it_for_a_while() -> None:
    watch = OpenRequests(10)
    one, two = ask(watch, 1), ask(watch, 2)
    watch.receive(RequestsForwarded(STREAM, 1, 3), "node", 1.0)
    watch.tick(5.0)
    assert answers(watch) == []
    assert watch.next_deadline() == 5.0 + FORWARDED_S
    watch.receive(ResponseAccepted(one.id), "node", 5.1)
    watch.tick(5.0 + FORWARDED_S)
    assert answers(watch) == [(two.id, Code.DEADLINE_EXCEEDED)]


def test_a_request_that_a_stranger_answered_is_still_open() -> None:
    watch = OpenRequests(10)
    one = ask(watch, is_handed=True)
    watch.receive(ResponseAccepted(one.id, Address.parse("//mallory/1/1/7")), "stranger", 1.0)
    assert len(watch) == 1
    watch.receive(ResponseAccepted(one.id, one.sink), "server", 1.0)
    assert len(watch) == 0


def test_an_answered_request_is_not_answered_by_the_node() -> None:
    watch = OpenRequests(10)
    one, two = ask(watch, 1), ask(watch, 2, deadline=9.0)
    watch.receive(ResponseAccepted(one.id), "server", 1.0)
    watch.receive(ResponseAccepted(make_id(9, 9)), "server", 1.0)
    watch.tick(5.0)
    assert answers(watch) == []
    assert watch.next_deadline() == 9.0
    watch.receive(ResponseAccepted(two.id), "server", 6.0)
    watch.tick(9.0)
    assert answers(watch) == []


@pytest.mark.parametrize(
    ("reason", "code", "is_handed", "answer"),
    [
        (Reason.EXPIRED, Code.DEADLINE_EXCEEDED, False, Code.UNAVAILABLE),
        (Reason.EXPIRED, Code.DEADLINE_EXCEEDED, True, Code.DEADLINE_EXCEEDED),
        (Reason.EGRESS_FULL, Code.RESOURCE_EXHAUSTED, False, Code.RESOURCE_EXHAUSTED),
        (Reason.DENIED, Code.PERMISSION_DENIED, False, Code.PERMISSION_DENIED),
        (Reason.UNAUTHENTICATED, Code.UNAUTHENTICATED, False, Code.UNAUTHENTICATED),
        (Reason.MALFORMED, Code.INVALID_ARGUMENT, False, Code.INVALID_ARGUMENT),
        (Reason.NO_ROUTE, Code.UNAVAILABLE, False, Code.UNAVAILABLE),
        (Reason.ATTEMPTS_EXHAUSTED, Code.ABORTED, True, Code.UNKNOWN),
        (Reason.REJECTED, Code.NOT_FOUND, True, Code.UNKNOWN),
        (Reason.REJECTED, Code.INVALID_ARGUMENT, True, Code.INVALID_ARGUMENT),
        (Reason.INTERNAL, Code.INTERNAL, True, Code.INTERNAL),
        (Reason.RETENTION, Code.DATA_LOSS, False, Code.INTERNAL),
    ],
)
def test_a_dead_request_is_answered_with_the_code_of_its_reason(
    reason: Reason, code: Code, is_handed: bool, answer: Code
) -> None:
    watch = OpenRequests(10)
    request = ask(watch, is_handed=is_handed)
    for _ in range(2):
        watch.receive(RequestsUndeliverable(STREAM, 1, 2, code, reason, "why"), "server", 1.0)
    assert answers(watch) == [(request.id, answer)]
    watch.tick(9.0)
    assert answers(watch) == []


@given(st.sampled_from([*Reason, "something new"]), st.integers(0, 20), st.booleans())
def test_a_node_answers_with_one_of_eight_codes(reason: str, code: int, is_handed: bool) -> None:
    assert answer_code(reason, code, is_handed) in CODES
    assert len(CODES) == 8


def test_a_full_watch_says_so() -> None:
    watch = OpenRequests(2)
    one = ask(watch, 1)
    assert not watch.is_full
    ask(watch, 2)
    assert watch.is_full
    watch.receive(ResponseAccepted(one.id), "server", 0.0)
    assert not watch.is_full


@given(st.lists(st.tuples(st.sampled_from("ahrdt"), st.integers(1, 6)), max_size=60))
def test_a_node_answers_at_most_once_and_never_after_a_response(
    steps: list[tuple[str, int]],
) -> None:
    watch = OpenRequests(100)
    asked: dict[UUID, int] = {}
    responded: set[UUID] = set()
    answered: list[UUID] = []
    now = 0.0
    for kind, number in steps:
        id_ = make_id(1, number)
        if kind == "a" and id_ not in asked:
            asked[id_] = number
            ask(watch, number, deadline=now + number)
        elif kind == "h":
            watch.receive(RequestsDelivered(STREAM, number, number + 3), "server", now)
        elif kind == "r" and id_ in asked:
            responded |= {id_} - set(answered)
            watch.receive(ResponseAccepted(id_), "server", now)
        elif kind == "d":
            watch.receive(
                RequestsUndeliverable(STREAM, number, number + 2, 8, Reason.EGRESS_FULL, ""), "server", now
            )
        else:
            now += number
            watch.tick(now)
        answered += [id_ for id_, _ in answers(watch)]
    watch.tick(now + 10.0)
    answered += [id_ for id_, _ in answers(watch)]
    assert sorted([*answered, *responded]) == sorted(asked)
    assert len(watch) == 0
