"""Events that go in pieces while they are still arriving, on one node, with real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from reknit.batch import Batch
from reknit.client.blocking.session import connect_sync
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.publish.publisher import Publisher
from reknit.client.session import Session, connect
from reknit.client.streams import OutgoingStream
from reknit.config import AnycastSettings, JournalSettings, NodeSettings, SecuritySettings
from reknit.errors import Aborted, Closed, LocalError, Modified, Rejected, Released
from reknit.event import FLAG_STREAM, Event
from reknit.node.node import Node
from reknit.outcome import Code, Outcome
from reknit.server import build_node
from tests.client.node_thread import serving
from tests.node.anycast.test_gateway_api import config
from tests.node.node_processes import run, until

TOPIC = "orders/film"
WINDOW = 4096
PIECE = bytes(range(256)) * 4
ENDLESS = 1_000_000
Reads = Callable[[Event], Awaitable[None]]


@asynccontextmanager
async def node(folder: Path | None = None, **anycast: int) -> AsyncIterator[Node]:
    sections: dict[str, object] = {"anycast": AnycastSettings(**{"stream_window_bytes": WINDOW, **anycast})}
    if folder is not None:
        sections["journal"] = JournalSettings(kind="disk", sync=False)
        sections["node"] = NodeSettings(name="here", listen=("tcp://127.0.0.1:0",), data_dir=folder)
    async with build_node(config(**sections)) as made:
        yield made


@asynccontextmanager
async def session(made: Node) -> AsyncIterator[Session]:
    async with connect(made.urls[0], config=made.config) as opened:
        yield opened


class Reader:
    """A subscriber that reads streams its own way, in a session of its own."""

    def __init__(self, made: Node, read: Reads, auto_accept: bool = False) -> None:
        self._made, self._read, self._auto_accept = made, read, auto_accept
        self.opened = asyncio.Event()
        self.events: list[str] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with (
            session(self._made) as opened,
            opened.subscribe("orders/**", auto_accept=self._auto_accept, streams=True) as events,
        ):
            self.opened.set()
            async for event in events:
                self.events.append(event.id)
                await self._read(event)


@asynccontextmanager
async def reading(made: Node, *reads: Reads, auto_accept: bool = False) -> AsyncIterator[list[Reader]]:
    readers: list[Reader] = []
    try:
        for read in reads:
            readers.append(Reader(made, read, auto_accept))
            await readers[-1].opened.wait()
        yield readers
    finally:
        for reader in readers:
            reader.task.cancel()
            with suppress(asyncio.CancelledError):
                await reader.task


async def send(
    publisher: Publisher,
    count: int = 1,
    meanwhile: Callable[[OutgoingStream], Awaitable[None]] | None = None,
    piece: bytes = PIECE,
) -> OutgoingStream:
    """A stream of so many pieces; `meanwhile` is when the first is out."""
    async with publisher.stream() as out:
        await out.write(piece)
        if meanwhile is not None:
            await meanwhile(out)
        for _ in range(count - 1):
            await out.write(piece)
    return out


async def read_all(event: Event) -> bytes:
    return b"".join([piece async for piece in event.pieces()])


async def release(event: Event) -> None:
    event.release()


def taking(into: list[bytes]) -> Reads:
    async def take(event: Event) -> None:
        into.append(await read_all(event))
        event.accept()

    return take


def is_idle(made: Node) -> bool:
    machine, streams = made.anycast.machine, made.anycast.streams
    return machine.records() == 0 and streams.status() == {"open": 0, "held_bytes": 0, "spilled_bytes": 0}


def test_a_stream_arrives_whole_and_leaves_nothing_behind() -> None:
    async def test() -> None:
        got: list[bytes] = []
        async with node() as made, reading(made, taking(got)), session(made) as mine:
            publisher = mine.publisher(TOPIC, resend_released=True)
            async with publisher.stream() as out:
                for _ in range(50):
                    await out.write(PIECE)
            assert (out.outcome, got) == (Outcome.ACCEPTED, [PIECE * 50])
            async with publisher.stream():
                pass
            assert got[1:] == [b""], "an empty one is an event too"
            await until(lambda: is_idle(made))

    run(test)


def test_pieces_are_there_before_the_last_one_is_sent() -> None:
    async def test() -> None:
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def read(event: Event) -> None:
            assert (event.is_stream, event.payload, event.headers) == (True, b"", {"kind": "film"})
            async for piece in event.pieces():
                if not first.done():
                    first.set_result(piece)
            event.accept()

        async with node() as made, reading(made, read), session(made) as mine:
            publisher = mine.publisher(TOPIC, outcome=True)
            async with publisher.stream(headers={"kind": "film"}) as out:
                await out.write(b"early")
                assert await first == b"early"
                await out.write("late")
            assert out.sent_bytes == 9

    run(test)


def test_5_mb_released_twice_then_received_arrive_whole(tmp_path: Path) -> None:
    async def test() -> None:
        got: list[bytes] = []
        piece, count = bytes(range(256)) * 256, 80

        async def release_midway(event: Event) -> None:
            read = 0
            async for part in event.pieces():
                read += len(part)
                if read > 1 << 20:
                    break
            event.release()

        async def receive(event: Event) -> None:
            event.in_progress()
            got.append(await read_all(event))
            event.accept()

        reads = (release_midway, release_midway, receive)
        async with (
            node(tmp_path, streams_held_bytes_max=100_000) as made,
            reading(made, *reads) as readers,
            session(made) as mine,
        ):
            publisher = mine.publisher(TOPIC, resend_released=True)
            async with publisher.stream() as out:
                for _ in range(count):
                    await out.write(piece)
            assert [piece * count] == got
            assert [reader.events for reader in readers] == [[out.id]] * 3
            attempts = made.anycast.attempts(out.source, 1)["attempts"]
            assert [one["outcome"] for one in attempts] == ["RELEASED", "RELEASED", "ACCEPTED"]
            await until(lambda: is_idle(made))

    run(test)


def test_without_the_flag_a_release_is_the_end() -> None:
    async def test() -> None:
        got: list[bytes] = []
        async with node() as made, reading(made, release, taking(got)), session(made) as mine:
            publisher = mine.publisher(TOPIC, outcome=True)
            with pytest.raises(Released):
                await send(publisher, ENDLESS)
            assert got == []
            await until(lambda: is_idle(made))

    run(test)


def test_everybody_releases_and_each_was_asked_once() -> None:
    async def test() -> None:
        async with node() as made, reading(made, release, release) as readers, session(made) as mine:
            with pytest.raises(Released) as told:
                await send(mine.publisher(TOPIC, resend_released=True))
            assert told.value.attempts == 2
            assert [len(reader.events) for reader in readers] == [1, 1]
            await until(lambda: is_idle(made))

    run(test)


def test_received_pins_the_way() -> None:
    async def test() -> None:
        got: list[bytes] = []

        async def receive_then_release(event: Event) -> None:
            event.in_progress()
            async for _ in event.pieces():
                break
            event.release()

        async with node() as made, reading(made, receive_then_release, taking(got)), session(made) as mine:
            with pytest.raises(Released):
                await send(mine.publisher(TOPIC, resend_released=True), ENDLESS)
            assert got == []
            await until(lambda: is_idle(made))

    run(test)


def test_what_is_pinned_is_not_kept() -> None:
    async def test() -> None:
        pinned = asyncio.Event()
        go_on = asyncio.Event()

        async def receive(event: Event) -> None:
            event.in_progress()
            async for _ in event.pieces():
                pinned.set()
            await go_on.wait()
            event.accept()

        async with node() as made, reading(made, receive), session(made) as mine:

            async def meanwhile(out: OutgoingStream) -> None:
                await pinned.wait()
                for _ in range(50):
                    await out.write(PIECE)
                await until(lambda: made.anycast.streams.buffer.held_bytes == 0)
                assert made.anycast.streams.status()["open"] == 1
                go_on.set()

            await send(mine.publisher(TOPIC, resend_released=True), 1, meanwhile)

    run(test)


@pytest.mark.parametrize("how", ["an exception", "abort", "the connection"])
def test_a_receiver_is_told_of_an_abort_and_takes_no_half_for_a_whole(how: str) -> None:
    async def test() -> None:
        errors: list[str] = []

        async def read(event: Event) -> None:
            with pytest.raises(Aborted) as told:
                await read_all(event)
            errors.append(told.value.text)
            with pytest.raises(LocalError, match="not read to its end"):
                event.accept()

        async with node() as made, reading(made, read) as [reader], session(made) as mine:
            publisher = mine.publisher(TOPIC, resend_released=True)

            async def meanwhile(out: OutgoingStream) -> None:
                await until(lambda: len(reader.events) == 1)
                if how == "an exception":
                    raise ZeroDivisionError
                if how == "abort":
                    await out.abort()
                else:
                    mine.connection.drop()

            expected = {"an exception": ZeroDivisionError, "abort": Closed, "the connection": Modified}[how]
            with pytest.raises(expected):
                await send(publisher, ENDLESS, meanwhile)
            await until(lambda: len(errors) == 1)
            assert errors == [
                "its sender was lost before the end of the stream"
                if how == "the connection"
                else "its publisher gave it up"
            ]
            await until(lambda: is_idle(made))

    run(test)


def test_a_reader_that_comes_late_to_an_abort_is_told_too() -> None:
    async def test() -> None:
        async with (
            node() as made,
            session(made) as mine,
            mine.subscribe("orders/**", auto_accept=False, streams=True) as events,
        ):
            async with mine.publisher(TOPIC).stream() as out:
                await until(lambda: len(events._queue) == 1)
                await out.abort()
            await until(lambda: is_idle(made))
            event = await anext(events)
            with pytest.raises(Aborted, match="the stream has ended"):
                await read_all(event)

    run(test)


def test_a_reader_that_is_lost_midway_leaves_it_in_doubt() -> None:
    async def test() -> None:
        got: list[bytes] = []
        at_it = asyncio.Event()

        async def stay(event: Event) -> None:
            at_it.set()
            with pytest.raises(Aborted, match="the connection was lost"):
                await read_all(event)

        async with node() as made, reading(made, stay, taking(got)), session(made) as mine:

            async def meanwhile(out: OutgoingStream) -> None:
                await at_it.wait()
                reader = made.peers.get(min(made.anycast.subscriptions._patterns)[0])
                assert reader is not None
                reader.connection.abort()

            with pytest.raises(Modified, match="may have been processed"):
                await send(mine.publisher(TOPIC, resend_released=True), ENDLESS, meanwhile)
            assert got == []
            await until(lambda: is_idle(made))

    run(test)


def test_a_reader_that_leaves_in_good_order_hands_it_to_the_next() -> None:
    async def test() -> None:
        got: list[bytes] = []

        async with node() as made, session(made) as mine, session(made) as other:
            publisher = mine.publisher(TOPIC, resend_released=True)
            leaving = other.subscribe("orders/**", auto_accept=False, streams=True)
            await leaving.__aenter__()
            async with reading(made, taking(got)) as [reader], publisher.stream() as out:
                await out.write(PIECE)
                await until(lambda: len(leaving._queue) == 1)
                await leaving.__aexit__(None, None, None)
                for _ in range(20):
                    await out.write(PIECE)
            assert (got, reader.events) == ([PIECE * 21], [out.id])

    run(test)


def test_only_who_wants_streams_gets_them_and_the_others_go_on() -> None:
    async def test() -> None:
        async with node() as made, session(made) as mine, session(made) as other:
            publisher = mine.publisher(TOPIC, resend_released=True)
            assert isinstance(publisher, OutcomePublisher)
            async with other.subscribe("orders/**") as events:
                with pytest.raises(Released):
                    await send(publisher)
                done = publisher.publish(b"plain")
                async for event in events:
                    assert (event.payload, event.is_stream) == (b"plain", False)
                    assert [piece async for piece in event.pieces()] == [b"plain"]
                    break
            assert await done is Outcome.ACCEPTED

    run(test)


def test_a_stream_that_waits_for_room_does_not_hold_up_plain_events() -> None:
    async def test() -> None:
        async with node() as made, session(made) as mine, session(made) as other:
            publisher = mine.publisher(TOPIC, resend_released=True)
            assert isinstance(publisher, OutcomePublisher)
            plain = other.subscribe("orders/**")
            taker = mine.subscribe("orders/**", streams=True)
            async with plain as events, taker:
                for path in made.anycast.machine.paths():
                    path.credit.block(path.takes_streams)
                async with publisher.stream() as out:
                    await until(lambda: made.anycast.machine.waiting() == 1)
                    done = publisher.publish(b"plain")
                    async for event in events:
                        assert event.payload == b"plain"
                        break
                    await out.abort()
                await until(lambda: made.anycast.streams.status()["open"] == 0)
                assert made.anycast.machine.waiting() == 0
            assert await done is Outcome.ACCEPTED

    run(test)


def test_with_auto_accept_reading_pins_and_the_end_accepts() -> None:
    async def test() -> None:
        got: list[bytes] = []

        async def read(event: Event) -> None:
            got.append(await read_all(event))

        async with node() as made, reading(made, read, auto_accept=True), session(made) as mine:
            async with mine.publisher(TOPIC, resend_released=True).stream() as out:
                for _ in range(20):
                    await out.write(PIECE)
            assert (out.outcome, got) == (Outcome.ACCEPTED, [PIECE * 20])

    run(test)


@pytest.mark.parametrize("is_begun", [False, True])
def test_with_auto_accept_what_was_left_unread_is_not_accepted(is_begun: bool) -> None:
    async def test() -> None:
        async def read(event: Event) -> None:
            if is_begun:
                async for _ in event.pieces():
                    break

        expected = Modified if is_begun else Released
        async with node() as made, reading(made, read, auto_accept=True), session(made) as mine:
            with pytest.raises(expected):
                await send(mine.publisher(TOPIC, resend_released=True), 20)

    run(test)


@pytest.mark.parametrize("reads", ["all", "some", "nothing"])
def test_streams_without_asyncio(reads: str) -> None:
    with (
        serving(config(anycast=AnycastSettings(stream_window_bytes=WINDOW))) as made,
        connect_sync(made.urls[0], config=made.config) as mine,
        connect_sync(made.urls[0], config=made.config) as other,
        other.subscribe("orders/**", streams=True, idle_s=20) as events,
        ThreadPoolExecutor() as pool,
    ):

        def write() -> Outcome | None:
            with mine.publisher(TOPIC, resend_released=True).stream(headers={"k": "v"}) as out:
                for _ in range(20):
                    out.write(PIECE)
            return out.outcome

        writing = pool.submit(write)
        event = next(events)
        pieces = events.pieces(event)
        match reads:
            case "all":
                assert b"".join(pieces) == PIECE * 20
            case "some":
                assert PIECE.startswith(next(pieces)[:100])
        events._accept_current(all_of_it=True)  # as asking for the next one does
        expected = {"all": None, "some": Modified, "nothing": Released}[reads]
        if expected is None:
            assert writing.result(150) is Outcome.ACCEPTED
        else:
            with pytest.raises(expected):
                writing.result(150)


def test_a_topic_of_the_journal_has_no_streams() -> None:
    async def test() -> None:
        async with node() as made, session(made) as mine:
            for topic in ("plain", "all/new"):
                with pytest.raises(Rejected, match="balanced or closest"):
                    await send(mine.publisher(topic))

    run(test)


def test_who_may_not_publish_may_not_stream() -> None:
    async def test() -> None:
        security = SecuritySettings(allow=("* subscribe **", "* publish orders/open"))
        async with (
            build_node(config(security=security)) as made,
            session(made) as mine,
            mine.subscribe("orders/**", streams=True),
        ):
            with pytest.raises(Rejected, match="may not publish") as told:
                await send(mine.publisher(TOPIC))
            assert told.value.code == Code.PERMISSION_DENIED

    run(test)


def test_an_event_without_its_payload_is_not_kept() -> None:
    async def test() -> None:
        async with node() as made, session(made) as mine:
            for source, flags in ((b"s" * 16, FLAG_STREAM), (b"p" * 16, 0)):
                batch = Batch.build(source, TOPIC, 1, [b""], time_us=1, flags=flags)
                mine.connection.send_buffers([batch.data])
            published = made.journal.ledger.published
            await until(lambda: (TOPIC, b"p" * 16) in published)
            assert (TOPIC, b"s" * 16) not in published

    run(test)


def test_limits_refuse_with_their_names() -> None:
    async def test() -> None:
        async with node(streams_max=1, stream_bytes_max=6000) as made, session(made) as mine:
            publisher = mine.publisher(TOPIC)
            async with mine.subscribe("orders/**", streams=True):
                async with publisher.stream() as out:
                    with pytest.raises(Rejected, match="streams_max"):
                        await send(publisher)
                    await out.abort()
                got: list[bytes] = []
                async with reading(made, taking(got)):
                    with pytest.raises(Modified, match="stream_bytes_max") as told:
                        await send(publisher, ENDLESS)
                    assert told.value.code == Code.RESOURCE_EXHAUSTED

    run(test)


def test_accepting_before_the_end_is_not_believed() -> None:
    async def test() -> None:
        async with (
            node() as made,
            session(made) as mine,
            mine.subscribe("orders/**", auto_accept=False, streams=True) as events,
        ):

            async def meanwhile(out: OutgoingStream) -> None:
                event = await anext(events)
                events._streams._open.clear()  # a client that does not look
                event.accept()

            with pytest.raises(Modified, match="before its end"):
                await send(mine.publisher(TOPIC), ENDLESS, meanwhile)

    run(test)


def test_memory_stays_under_the_cap_whatever_the_size(tmp_path: Path) -> None:
    """64 MiB through a node that may hold 1 MiB of it, to a subscriber that never pins it."""

    async def test() -> None:
        piece, count = bytes(64 << 10), 1024
        cap = 1 << 20
        most = spilled = read = 0

        async def take(event: Event) -> None:
            nonlocal read
            async for part in event.pieces():
                read += len(part)
            event.accept()

        async with (
            node(tmp_path, streams_held_bytes_max=cap, stream_window_bytes=1 << 18) as made,
            reading(made, take),
            session(made) as mine,
        ):
            buffer = made.anycast.streams.buffer
            async with mine.publisher(TOPIC, resend_released=True).stream() as out:
                for _ in range(count):
                    await out.write(piece)
                    most, spilled = max(most, buffer.held_bytes), max(spilled, buffer.spilled_bytes)
            assert read == count * len(piece)
            assert cap - len(piece) < most <= cap
            assert spilled > 60 << 20, "the rest was in a file"
            await until(lambda: is_idle(made))

    run(test)
