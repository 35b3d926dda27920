"""Attributes: sound ones pass, each way of being unsound is refused; in a batch they stay what they were."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reknit.address import Address
from reknit.batch import FLAG_ATTRIBUTES, Batch
from reknit.envelope.attributes import Attributes, Kind, Priority, check, is_traceparent, response_to
from reknit.envelope.columns import fields_of, has_attributes, problem_with, read_attributes, read_loosely
from reknit.envelope.ids import IdMaker, check_id, make_id, parse_id, time_ms_of
from reknit.envelope.status import from_status, to_status
from reknit.errors import InvalidAttributes
from reknit.outcome import Code, Reason
from tests.envelope.samples import CLIENT, METHOD, SOUND, TOPIC, TRACE, changed, sound, texts
from tests.envelope.vectors import NO_UUIDS, UUIDS

ANY_METHOD = Address.parse("//vcu/10/1/FFFF")


# -- ids


@pytest.mark.parametrize(("msb", "lsb", "text"), UUIDS)
def test_uuid_is_written_and_read_as_specified(msb: int, lsb: int, text: str) -> None:
    assert str(UUID(int=msb << 64 | lsb)) == text
    assert parse_id(text) == UUID(int=msb << 64 | lsb)


@pytest.mark.parametrize("text", [*NO_UUIDS, "", "{00000000-0001-7000-8000-0000000000ab}", "0" * 32, "zz"])
def test_uuid_of_another_version_or_variant_is_refused(text: str) -> None:
    with pytest.raises(InvalidAttributes):
        parse_id(text)


@given(st.integers(0, (1 << 48) - 1), st.integers(0, 1 << 80))
def test_an_id_has_its_version_its_variant_and_its_time(time_ms: int, random: int) -> None:
    made = check_id(make_id(time_ms, random))
    assert time_ms_of(made) == time_ms


def test_ids_of_one_maker_never_repeat_and_keep_their_order_whatever_the_clock_does() -> None:
    times = iter([5] * 3000 + [4] * 3000 + [9] * 10)
    maker = IdMaker(now_ms=lambda: next(times), random=lambda: 0)
    made = [maker() for _ in range(6010)]
    assert made == sorted(set(made))
    assert time_ms_of(made[-1]) >= 9


# -- the table


@pytest.mark.parametrize("kind", Kind)
def test_sound_attributes_pass(kind: Kind) -> None:
    assert check(SOUND[kind]) is SOUND[kind]


P, N, Q, R = Kind.PUBLISH, Kind.NOTIFICATION, Kind.REQUEST, Kind.RESPONSE


@pytest.mark.parametrize(
    ("kind", "name", "changes"),
    [
        (P, "source", {"source": METHOD}),
        (P, "source", {"source": CLIENT}),
        (P, "source", {"source": Address.parse("//vcu/10/1/FFFF")}),
        (P, "source", {"source": Address.parse("//*/10/1/8001")}),
        (P, "sink", {"sink": CLIENT}),
        (N, "source", {"source": METHOD}),
        (N, "sink", {"sink": None}),
        (N, "sink", {"sink": METHOD}),
        (Q, "source", {"source": TOPIC}),
        (Q, "sink", {"sink": None}),
        (Q, "sink", {"sink": CLIENT}),
        (Q, "sink", {"sink": TOPIC}),
        (Q, "sink", {"sink": ANY_METHOD}),
        (Q, "priority", {"priority": Priority.CS3}),
        (Q, "ttl", {"ttl_ms": 0}),
        (Q, "permission_level", {"permission_level": -1}),
        (Q, "token", {"token": "x" * 10_000}),
        (R, "source", {"source": CLIENT}),
        (R, "priority", {"priority": Priority.CS3}),
        (R, "priority", {"priority": Priority.CS0}),
        (R, "sink", {"sink": METHOD}),
        (R, "sink", {"sink": None}),
        (R, "reqid", {"reqid": None}),
        (R, "reqid", {"reqid": UUID("00000000-0001-8000-8000-0000000000ab")}),
        (P, "id", {"id": UUID("00000000-0001-4000-8000-0000000000ab")}),
        (P, "ttl", {"ttl_ms": 1 << 32}),
        (P, "traceparent", {"traceparent": "00-0-0-0"}),
    ],
)
def test_unsound_attribute_is_refused_by_its_name(kind: Kind, name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidAttributes) as caught:
        check(changed(kind, **changes))
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (P, {"priority": Priority.CS0}),
        (P, {"source": Address.parse("/0/1/FFFE")}),
        (Q, {"sink": Address.parse("/0/1/1"), "priority": Priority.CS6}),
        (Q, {"sink": Address.parse("/0/1/7FFF"), "token": "t", "permission_level": 0}),
        (R, {"commstatus": Code.UNAVAILABLE}),
        (R, {"traceparent": TRACE}),
    ],
)
def test_the_edges_of_the_table_are_allowed(kind: Kind, changes: dict[str, Any]) -> None:
    check(changed(kind, **changes))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (TRACE, True),
        (TRACE + "-more", False),
        ("01" + TRACE[2:] + "-more", True),
        ("ff" + TRACE[2:], False),
        (TRACE.upper(), False),
        (TRACE.replace("b7ad6b7169203331", "0" * 16), False),
        ("", False),
    ],
)
def test_traceparent_is_as_w3c_says(text: str, is_one: bool) -> None:
    assert is_traceparent(text) == is_one


def test_an_event_expires_after_its_ttl_and_never_without_one() -> None:
    made = changed(P, id=make_id(1000, 0), ttl_ms=50)
    assert not made.is_expired(1050)
    assert made.is_expired(1051)
    assert not structs.replace(made, ttl_ms=0).is_expired(1 << 47)


def test_a_response_goes_back_with_the_requests_id_priority_and_ttl() -> None:
    request = changed(Q, priority=Priority.CS6, ttl_ms=77, traceparent=TRACE)
    response = check(response_to(request, make_id(9, 9), Code.UNAVAILABLE))
    assert (response.source, response.sink, response.reqid) == (request.sink, request.source, request.id)
    assert (response.priority, response.ttl_ms, response.commstatus) == (Priority.CS6, 77, Code.UNAVAILABLE)
    assert (response.id, response.traceparent) == (make_id(9, 9), TRACE)
    assert response_to(request, make_id(9, 9)).commstatus is None


# -- in a batch


@given(st.lists(sound(), min_size=1, max_size=5))
def test_attributes_in_a_batch_stay_what_they_were(several: list[Attributes]) -> None:
    first = several[0]
    shared = {"type": first.type, "priority": first.priority, "source": first.source, "sink": first.sink}
    several = [structs.replace(one, **shared, reqid=first.reqid) for one in several]
    several = [structs.replace(one, ttl_ms=max(1, one.ttl_ms)) for one in several]
    fields = fields_of(several)
    batch = Batch.build(b"s" * 16, first.topic, 7, [b"x"] * len(several), 0, **fields)
    again = Batch.parse(bytes(batch.data))
    assert has_attributes(again)
    assert read_attributes(again) == several
    assert [event.attributes for event in again.events()] == several
    assert problem_with(again, 1 << 48, 0) is None
    if len(several) > 1:
        assert read_attributes(again.cut(8, 9)) == several[1:2]


def test_plain_events_have_no_attributes_and_cost_nothing() -> None:
    batch = Batch.build(b"s" * 16, "plant/temp", 1, [b"x"], 0)
    assert batch.head.flags == 0
    assert batch.events()[0].attributes is None
    assert read_attributes(batch) == []


def built(kind: Kind = P, topic: str = "", **changes: Any) -> Batch:
    fields = fields_of([SOUND[kind]]) | {key: value for key, value in changes.items() if key != "columns"}
    fields["columns"] = fields["columns"] | changes.get("columns", {})
    return Batch.build(b"s" * 16, topic or SOUND[kind].topic, 1, [b"x"], 0, **fields)


@pytest.mark.parametrize(
    "batch",
    [
        built(topic="plant/temp"),
        built(topic="up/vcu/10/0/1/7"),
        built(type=9),
        built(priority=200),
        built(columns={"up.id": ["text"]}),
        built(columns={"up.id": [b"short"]}),
        built(columns={"up.id": [bytes(16)]}),
        built(columns={"up.format": [99]}),
        built(columns={"up.format": [True]}),
        built(columns={"up.token": [7]}),
        built(columns={"up.more": [{"a": 1.5}]}),
        built(Q, columns={"up.source": [5]}),
        built(Q, columns={"up.source": ["//phone/20/1/7"]}),
        built(Q, ttl_ms=0),
        built(Q, flags=0),
        built(R, columns={"up.status": [99]}),
        built(R, columns={"up.reqid": [None]}),
        Batch.build(b"s" * 16, TOPIC.topic, 1, [b"x"], 0, flags=FLAG_ATTRIBUTES),
    ],
)
def test_what_a_peer_made_up_is_malformed_and_nothing_worse(batch: Batch) -> None:
    problem = problem_with(Batch.parse(bytes(batch.data)), 10, 0)
    assert problem is not None
    assert problem[:2] == (Code.INVALID_ARGUMENT, Reason.MALFORMED)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=17),
    st.lists(st.integers(0, 99), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    st.just(make_id(1, 1).bytes),
    st.just(str(CLIENT)),
)
columns = st.dictionaries(
    st.sampled_from(
        [
            "up.id",
            "up.source",
            "up.level",
            "up.status",
            "up.reqid",
            "up.token",
            "up.trace",
            "up.format",
            "up.more",
        ]
    ),
    st.lists(anything, min_size=1, max_size=1),
)
some_topics = st.sampled_from([*(one.topic for one in SOUND.values()), "plant/temp", "up/*/1", "up/vcu"])


@given(columns, some_topics, st.integers(0, 255), st.integers(0, 255), st.integers(0, 1), st.integers(0, 9))
def test_whatever_a_peer_says_is_sound_or_malformed(
    made: dict[str, list[Any]], topic: str, kind: int, priority: int, flags: int, ttl_ms: int
) -> None:
    fields: dict[str, Any] = {"type": kind, "priority": priority, "flags": flags, "ttl_ms": ttl_ms}
    batch = Batch.parse(bytes(Batch.build(b"s" * 16, topic, 1, [b""], 0, columns=made, **fields).data))
    problem = problem_with(batch, 1 << 47, 0)
    loosely = read_loosely(batch)
    if problem is None and flags:
        assert loosely == read_attributes(batch)
    elif problem is not None:
        assert problem[:2] == (Code.INVALID_ARGUMENT, Reason.MALFORMED)


def test_an_id_from_too_far_in_the_future_is_refused() -> None:
    batch = Batch.build(b"s" * 16, TOPIC.topic, 1, [b"x"], 0, **fields_of([changed(P, id=make_id(5000, 0))]))
    assert problem_with(batch, 4000, 1000) is None
    problem = problem_with(batch, 3999, 1000)
    assert problem is not None
    assert "1001 ms ahead" in problem[2]


# -- status


@given(st.sampled_from(Code), texts)
def test_a_status_survives_being_written_and_read(code: Code, text: str) -> None:
    assert from_status(to_status(code, text)) == (code, text)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_status_or_none(data: bytes) -> None:
    found = from_status(data)
    assert found is None or isinstance(found[1], str)


def test_a_status_that_is_too_long_is_cut_between_characters() -> None:
    found = from_status(to_status(13, "ä" * 5000))
    assert found is not None
    assert set(found[1]) == {"ä"}
