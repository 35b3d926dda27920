"""Requests over real connections: answered by a service, or by the node, or given up."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.address import Address
from reknit.client.rpc.requests import Caller
from reknit.client.rpc.service import Request
from reknit.config import (
    Config,
    DispatchSettings,
    JournalSettings,
    LimitSettings,
    NodeSettings,
    RpcSettings,
    TopicSettings,
)
from reknit.envelope.attributes import Attributes, Format, Kind, Priority, response_to
from reknit.envelope.ids import IdMaker
from reknit.envelope.status import from_status
from reknit.errors import Full, InvalidAddress, InvalidAttributes, Refused, RequestFailed
from reknit.outcome import Code, Reason
from reknit.topic import Pattern
from tests.client.node_thread import ANY_PORT, serving
from tests.client.rpc.shared import DOORS, all_kept, echo, failure, is_code, letters, never, run, until
from tests.envelope.samples import TRACE

pytestmark = pytest.mark.real

OTHER = Address.parse("//vcu/10/1/8")
MEMORY = JournalSettings(kind="memory")


def caller_of(session: reknit.Session) -> Caller:
    assert session._caller is not None
    return session._caller


# -- answered


def test_a_request_is_answered_by_who_serves_its_address(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as server, reknit.connect(url) as client, server.serve(DOORS, echo):
            reply = await client.request(str(DOORS), "open")
            assert reply.payload == b"echo open"
            assert reply.attributes.source == DOORS
            assert reply.attributes.sink == client.address

    run(program())


def test_a_handler_gets_what_the_requester_said(url: str) -> None:
    got: list[Request] = []

    async def handler(request: Request) -> None:
        got.append(request)

    async def program() -> None:
        more = {"token": "t0", "permission_level": 3, "traceparent": TRACE, "payload_format": Format.TEXT}
        async with reknit.connect(url, address="//phone/20/1/0") as session, session.serve(DOORS, handler):
            reply = await session.request(DOORS, "open", ttl_ms=7_000, priority=Priority.CS6, **more)
        assert reply.payload == b""
        assert (reply.attributes.priority, reply.attributes.ttl_ms) == (Priority.CS6, 7_000)
        assert reply.attributes.traceparent == TRACE
        [request] = got
        assert (request.payload, request.attempt) == (b"open", 1)
        assert request.attributes.source == Address.parse("//phone/20/1/0")
        assert request.attributes.sink == DOORS
        assert (request.attributes.token, request.attributes.permission_level) == ("t0", 3)
        assert (request.attributes.payload_format, request.attributes.priority) == (Format.TEXT, Priority.CS6)
        assert reply.attributes.reqid == request.attributes.id

    run(program())


def test_the_deadline_is_propagated_to_the_handler(url: str) -> None:
    remaining: list[float] = []

    async def handler(request: Request) -> None:
        remaining.append(request.remaining_s)

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            await session.request(DOORS, ttl_ms=20_000)
            await session.request(DOORS, ttl_ms=40_000)

    run(program())
    assert 0 < remaining[0] <= 20.0 < remaining[1] <= 40.0


def test_many_requests_at_once_get_each_their_own_answer(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as server, reknit.connect(url) as client, server.serve(DOORS, echo):
            replies = await asyncio.gather(*(client.request(DOORS, b"%d" % n) for n in range(500)))
            assert [reply.payload for reply in replies] == [b"echo %d" % n for n in range(500)]
            topics = (await client.status())["topics"]
            assert sum(row["events"] for row in topics if row["topic"] == DOORS.topic) == 500

    run(program())


def test_requests_of_one_turn_are_one_batch(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, echo):
            await session.request(DOORS)
            async with session.subscribe(str(DOORS.topic).replace("/7", "/*")) as events:
                await asyncio.gather(*(session.request(DOORS, b"%d" % n) for n in range(50)))
                assert (await anext(events.batches())).count == 50

    run(program())


def test_a_handler_that_refuses_says_so_with_its_code(url: str) -> None:
    async def handler(request: Request) -> bytes:
        raise Refused(Code.NOT_FOUND, "there is no such door")

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            error = await failure(session, ttl_ms=10_000)
        assert is_code(error, Code.NOT_FOUND)
        assert error.text == "there is no such door"

    run(program())


def test_a_handler_that_fails_is_unknown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> bytes:
        raise ZeroDivisionError("oops")

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            error = await failure(session, ttl_ms=10_000)
        assert is_code(error, Code.UNKNOWN)
        assert error.text == "ZeroDivisionError: oops"

    run(program())
    assert "handler" in caplog.text


def test_a_request_waits_for_its_service_until_its_ttl(url: str) -> None:
    """Once an address was served, requests to it are kept for who serves it next."""

    async def program() -> None:
        async with reknit.connect(url) as session:
            async with session.serve(DOORS, echo):
                pass
            asked = asyncio.create_task(session.request(DOORS, b"late", ttl_ms=20_000))
            await until(lambda: all_kept(session))
            async with session.serve(DOORS, echo):
                assert (await asked).payload == b"echo late"

    run(program())


# -- answered by the node


def test_never_handed_over_is_unavailable_and_a_dead_letter(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            error = await failure(session)
            assert is_code(error, Code.UNAVAILABLE)
            assert str(DOORS) in error.text
            assert (await session.status())["requests"] == {"open": 0, "answered": 1}
            [letter] = await letters(session, 1)
            assert (letter.topic, letter.reason, letter.code) == (
                DOORS.topic,
                Reason.NO_ROUTE,
                Code.UNAVAILABLE,
            )
            assert letter.payload == b"open"

    run(program())


def test_a_delivered_request_without_an_answer_is_deadline_exceeded(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, never):
            assert is_code(await failure(session), Code.DEADLINE_EXCEEDED)

    run(program())


def test_who_only_looks_on_does_not_make_a_request_delivered(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("up/**") as events:
            asked = asyncio.create_task(failure(session))
            assert (await anext(events)).payload == b"open"
            assert is_code(await asked, Code.UNAVAILABLE)

    run(program())


def test_a_request_too_many_is_resource_exhausted() -> None:
    config = Config(node=ANY_PORT, journal=MEMORY, rpc=RpcSettings(watched_max=2))

    async def program(url: str) -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, never):
            asked = [asyncio.create_task(failure(session, 900 + n)) for n in range(2)]
            await until(lambda: all_kept(session))
            error = await failure(session, 60_000)
            assert is_code(error, Code.RESOURCE_EXHAUSTED)
            assert "rpc.watched_max" in error.text
            assert {one.code for one in await asyncio.gather(*asked)} == {Code.DEADLINE_EXCEEDED}

    with serving(config) as node:
        run(program(node.urls[0]))


def test_a_request_to_a_full_queue_is_resource_exhausted() -> None:
    limits = LimitSettings(queue_events_max=2, queue_reserve_percent=0)
    topics = (TopicSettings(pattern=Pattern("up/**"), overflow="refuse_newest"),)
    config = Config(node=ANY_PORT, journal=MEMORY, limits=limits, topics=topics)

    async def program(url: str) -> None:
        async with reknit.connect(url) as session:
            async with session.serve(DOORS, echo):
                pass
            waiting = [asyncio.create_task(session.request(DOORS, ttl_ms=20_000)) for _ in range(2)]
            await until(lambda: all_kept(session))
            assert is_code(await failure(session, 20_000), Code.RESOURCE_EXHAUSTED)
            async with session.serve(DOORS, echo):
                assert [reply.payload for reply in await asyncio.gather(*waiting)] == [b"echo "] * 2

    with serving(config) as node:
        run(program(node.urls[0]))


def test_a_malformed_request_of_another_client_is_answered_and_dead(url: str) -> None:
    """A client that does not check: the node does, and answers as well as it can."""

    async def program() -> None:
        async with reknit.connect(url) as session:
            await failure(session, 1)  # it listens for responses from now on
            bad = Attributes(id=IdMaker()(), type=Kind.REQUEST, source=session.address, sink=DOORS)
            async with session.subscribe(session.address.topic) as events:
                publisher = session.attribute_publishers.publisher(DOORS.topic)
                with pytest.raises(Refused) as caught:
                    await publisher.put(bad, b"open")
                assert caught.value.code == Code.INVALID_ARGUMENT
                response = (await anext(events)).attributes
                assert response is not None
                assert (response.commstatus, response.reqid) == (Code.INVALID_ARGUMENT, bad.id)
            letter = (await letters(session, 2))[-1]
            assert (letter.reason, letter.payload) == (Reason.MALFORMED, b"open")

    run(program())


def test_a_rejected_request_is_answered_with_the_code_of_its_rejection(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            name = f"serve/{DOORS.topic}"
            async with session.subscribe(DOORS.topic, name=name, auto_accept=False) as events:
                asked = asyncio.create_task(failure(session, 20_000))
                await (await anext(events)).reject(Code.RESOURCE_EXHAUSTED, "too much to do")
                error = await asked
                assert is_code(error, Code.RESOURCE_EXHAUSTED)
                assert error.text == "too much to do"

    run(program())


def test_a_request_that_failed_too_often_is_unknown() -> None:
    config = Config(node=ANY_PORT, journal=MEMORY, dispatch=DispatchSettings(attempts_max=1))

    async def program(url: str) -> None:
        name = f"serve/{DOORS.topic}"
        async with (
            reknit.connect(url) as session,
            session.subscribe(DOORS.topic, name=name, auto_accept=False) as events,
        ):
            asked = asyncio.create_task(failure(session, 20_000))
            await (await anext(events)).fail()
            assert is_code(await asked, Code.UNKNOWN)

    with serving(config) as node:
        run(program(node.urls[0]))


def test_who_got_unavailable_may_ask_again(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            assert is_code(await failure(session), Code.UNAVAILABLE)
            async with session.serve(DOORS, echo):
                assert (await session.request(DOORS, b"again")).payload == b"echo again"

    run(program())


def test_a_generated_response_is_like_its_request(url: str) -> None:
    """From where it was sent to, to where it came from, with its id, priority and ttl, and the status inside."""

    async def program() -> None:
        async with reknit.connect(url) as session, session.subscribe("up/**") as events:
            await failure(session, 300, priority=Priority.CS6, traceparent=TRACE)
            request, response = [await anext(events), await anext(events)]
            one, two = request.attributes, response.attributes
            assert one is not None
            assert two is not None
            assert (two.type, two.reqid, two.commstatus) == (Kind.RESPONSE, one.id, Code.UNAVAILABLE)
            assert (two.source, two.sink) == (one.sink, one.source)
            assert (two.priority, two.ttl_ms, two.traceparent) == (Priority.CS6, 300, TRACE)
            assert two.id != one.id
            status = from_status(response.payload)
            assert status is not None
            assert (status[0], two.payload_format) == (Code.UNAVAILABLE, Format.PROTOBUF)

    run(program())


def test_a_payload_goes_through_untouched(url: str) -> None:
    """Whatever a payload's format says it is, nobody on the way looks."""
    payload = bytes(range(256)) * 3

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, echo):
            for form in Format:
                reply = await session.request(DOORS, payload, payload_format=form)
                assert reply.payload == b"echo " + payload

    run(program())


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_generated_response_that_nobody_waits_for_is_a_dead_letter(
    tmp_path: Path, is_watched: bool
) -> None:
    """On disk: the letter is written together with the response. Somebody who observes all topics changes nothing."""
    node = NodeSettings(name="test", listen=ANY_PORT.listen, data_dir=tmp_path / "data")
    request = Attributes(
        id=IdMaker()(),
        type=Kind.REQUEST,
        source=Address.parse("//gone/20/1/0"),
        sink=DOORS,
        priority=Priority.CS4,
        ttl_ms=200,
    )

    async def program(url: str) -> None:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(reknit.connect(url))
            if is_watched:
                await stack.enter_async_context(session.subscribe("up/**"))
            await session.publish_event(request, b"open")
            dead = {letter.topic: letter for letter in await letters(session, 2)}
            assert set(dead) == {DOORS.topic, request.source.topic}
            response = dead[request.source.topic]
            assert (response.reason, response.text) == (
                Reason.NO_ROUTE,
                "nobody waits for this response any more",
            )
            status = from_status(response.payload)
            assert status is not None
            assert status[0] == Code.UNAVAILABLE

    with serving(Config(node=node)) as made:
        run(program(made.urls[0]))


def test_a_generated_response_that_dies_is_a_dead_letter_and_is_not_answered(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url, address="//phone/20/1/0") as session:
            topic = session.address.topic
            async with session.subscribe(topic, name="phone", auto_accept=False) as events:
                await failure(session)
                await (await anext(events)).reject(Code.INVALID_ARGUMENT, "not for me")
                dead = {letter.topic: letter for letter in await letters(session, 2)}
                assert dead[topic].reason == Reason.REJECTED
                rows = (await session.status())["topics"]
                assert {row["topic"]: row["events"] for row in rows if row["topic"].startswith("up/")} == {
                    topic: 1,
                    DOORS.topic: 1,
                }

    run(program())


# -- late, twice, and given up


def test_late_and_duplicate_responses_are_counted_and_dropped(url: str) -> None:
    seen: list[Attributes] = []

    async def handler(request: Request) -> bytes:
        seen.append(request.attributes)
        return b"first"

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            reply = await session.request(DOORS)
            again = response_to(seen[0], IdMaker()())
            await session.publish_event(again, b"second")
            await session.publish_event(again, b"third")
            assert (await session.request(DOORS)).payload == b"first"
            assert reply.payload == b"first"
            requests = caller_of(session).requests
            assert (requests.duplicates, requests.late, len(requests)) == (2, 0, 0)

    run(program())


def test_a_client_gives_up_by_itself_when_the_node_says_nothing() -> None:
    """The node is asked to wait for nothing: its word comes too late, and is counted."""
    patient = Config(rpc=RpcSettings(grace_s=0.0))

    async def program(url: str) -> None:
        async with reknit.connect(url, config=patient) as session, session.serve(DOORS, never):
            for _ in range(3):
                assert (await failure(session, 50)).code == Code.DEADLINE_EXCEEDED
            requests = caller_of(session).requests
            while requests.late + requests.duplicates + requests.strays < 1:
                await failure(session, 20)
            assert len(requests) == 0

    with serving() as node:
        run(program(node.urls[0]))


def test_a_cancelled_request_leaves_nothing_behind(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, never):
            asked = asyncio.create_task(session.request(DOORS, ttl_ms=60_000))
            await until(lambda: all_kept(session))
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            assert len(caller_of(session).requests) == 0

    run(program())


def test_one_request_too_many_of_a_session_is_full(url: str) -> None:
    config = Config(rpc=RpcSettings(requests_max=1))

    async def program() -> None:
        async with reknit.connect(url, config=config) as session, session.serve(DOORS, never):
            asked = asyncio.create_task(failure(session, 300))
            await asyncio.sleep(0)
            with pytest.raises(Full, match="requests wait"):
                await session.request(DOORS)
            await asked

    run(program())


def test_a_session_that_ends_ends_its_requests(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as server, server.serve(DOORS, never):
            async with reknit.connect(url) as client:
                asked = asyncio.create_task(client.request(DOORS, ttl_ms=60_000))
                await until(lambda: all_kept(client))
            with pytest.raises((reknit.LocalError, RequestFailed)):
                await asked

    run(program())


# -- serving


def test_a_service_handles_as_many_at_a_time_as_it_may(url: str) -> None:
    running = most = 0

    async def handler(request: Request) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler, handlers_max=3):
            await asyncio.gather(*(session.request(DOORS) for _ in range(30)))

    run(program())
    assert most == 3


def test_a_handler_is_cancelled_at_the_deadline(url: str) -> None:
    ended: list[str] = []

    async def handler(request: Request) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            await failure(session, 100)
            await until(lambda: bool(ended))

    run(program())


def test_a_long_handler_keeps_its_lease() -> None:
    config = Config(node=ANY_PORT, journal=MEMORY, dispatch=DispatchSettings(lease_s=1.0))
    attempts: list[int] = []

    async def handler(request: Request) -> bytes:
        attempts.append(request.attempt)
        await asyncio.sleep(2.5)
        return b"done"

    async def program(url: str) -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, handler):
            assert (await session.request(DOORS, ttl_ms=25_000)).payload == b"done"

    with serving(config) as node:
        run(program(node.urls[0]))
    assert attempts == [1]


def test_what_a_leaving_service_did_not_finish_goes_to_the_next(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as client, reknit.connect(url) as second:
            async with reknit.connect(url) as first:
                begun = asyncio.Event()

                async def slow(request: Request) -> bytes:
                    begun.set()
                    await asyncio.Event().wait()
                    return b""

                async with first.serve(DOORS, slow):
                    asked = asyncio.create_task(client.request(DOORS, b"open", ttl_ms=20_000))
                    await begun.wait()
            async with second.serve(DOORS, echo):
                assert (await asked).payload == b"echo open"

    run(program())


def test_a_second_service_takes_the_address_over(url: str) -> None:
    async def program() -> None:
        async with (
            reknit.connect(url) as one,
            reknit.connect(url) as two,
            one.serve(DOORS, never) as old,
            two.serve(DOORS, echo),
        ):
            with pytest.raises(Refused) as caught:
                await old.wait()
            assert caught.value.code == Code.ABORTED
            assert (await one.request(DOORS, b"x")).payload == b"echo x"

    run(program())


def test_events_that_are_no_requests_are_rejected_by_a_service(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session, session.serve(DOORS, echo):
            await session.publish(DOORS.topic, b"plain")
            [letter] = await letters(session, 1)
            assert (letter.payload, letter.code) == (b"plain", Code.INVALID_ARGUMENT)
            assert (await session.request(DOORS, b"x")).payload == b"echo x"

    run(program())


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        ("//vcu/10/1/8001", {}),
        ("//vcu/10/1/0", {}),
        ("//vcu/10/1/FFFF", {}),
        ("//vcu/10/1/7", {"ttl_ms": 0}),
        ("//vcu/10/1/7", {"priority": Priority.CS3}),
        ("//vcu/10/1/7", {"priority": 9}),
        ("//vcu/10/1/7", {"traceparent": "x"}),
    ],
)
def test_a_request_that_is_none_is_not_even_sent(url: str, address: str, settings: dict[str, Any]) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            with pytest.raises((InvalidAttributes, InvalidAddress)):
                await session.request(address, **settings)
            assert (await session.status())["journal"]["events"] == 0

    run(program())


def test_published_and_notified_events_go_where_their_attributes_say(url: str) -> None:
    topic, phone = Address.parse("//vcu/10/1/8001"), Address.parse("//phone/20/1/0")
    ids = IdMaker()

    async def program() -> None:
        published = Attributes(id=ids(), type=Kind.PUBLISH, source=topic)
        notified = Attributes(id=ids(), type=Kind.NOTIFICATION, source=topic, sink=phone)
        async with reknit.connect(url, name="door") as session, session.subscribe("up/**") as events:
            await session.publish_event(published, b"open")
            await session.publish_event(notified, b"to you")
            got = {event.topic: event for event in [await anext(events), await anext(events)]}
            assert got[topic.topic].attributes == published
            assert got[phone.topic].attributes == notified
            with pytest.raises(InvalidAttributes):
                session.publish_event(Attributes(id=ids(), type=Kind.PUBLISH, source=phone), b"x")

    run(program())


def test_a_session_with_a_name_is_answered_at_the_same_address_in_its_next_life(url: str) -> None:
    async def program() -> None:
        addresses = set()
        for _ in range(2):
            async with reknit.connect(url, name="phone") as session, session.serve(OTHER, echo):
                addresses.add(session.address)
                assert (await session.request(OTHER, b"x")).payload == b"echo x"
        assert len(addresses) == 1

    run(program())


def test_a_session_writes_to_any_number_of_addresses_but_few_at_a_time(url: str) -> None:
    config = Config(rpc=RpcSettings(publishers_max=2))
    ids = IdMaker()

    async def program() -> None:
        async with reknit.connect(url, config=config) as session:
            made = [
                Attributes(id=ids(), type=Kind.PUBLISH, source=Address("vcu", 0x10, 1, 0x8000 + number))
                for number in range(5)
            ]
            for one in made:
                await session.publish_event(one, b"x")
            both = [session.publish_event(one, b"y") for one in made[:2]]
            with pytest.raises(Full, match="publishers to 2 addresses are all busy"):
                session.publish_event(made[2], b"y")
            await asyncio.gather(*both)
            await session.publish_event(made[2], b"y")
            assert (await session.status())["journal"]["events"] == 8

    run(program())


# -- blocking


def test_blocking_requests_and_services_do_the_same(url: str) -> None:
    threads: set[str] = set()

    def handler(request: Request) -> str:
        threads.add(threading.current_thread().name)
        if request.payload == b"no":
            raise Refused(Code.NOT_FOUND, "no")
        return f"done {request.payload.decode()}"

    with reknit.connect_sync(url) as server, reknit.connect_sync(url) as client:
        published = Attributes(id=IdMaker()(), type=Kind.PUBLISH, source=Address.parse("//vcu/10/1/8001"))
        client.publish_event(published, b"open")
        assert client.status()["journal"]["events"] == 1
        with server.serve(DOORS, handler):
            assert client.request(DOORS, "open").payload == b"done open"
            with pytest.raises(RequestFailed) as caught:
                client.request(DOORS, "no")
            assert caught.value.code == Code.NOT_FOUND
        with pytest.raises(RequestFailed):
            client.request(OTHER, ttl_ms=100)
    assert all(name.startswith("reknit-serve") for name in threads)


def test_what_a_blocking_handler_returns_after_the_deadline_is_dropped(url: str) -> None:
    late = threading.Event()

    def handler(request: Request) -> str:
        late.wait(20.0)
        return "too late"

    with reknit.connect_sync(url) as session, session.serve(DOORS, handler):
        with pytest.raises(RequestFailed) as caught:
            session.request(DOORS, ttl_ms=100)
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        late.set()
