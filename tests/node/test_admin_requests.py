"""Admin requests with arguments of any kind: each is answered, and the node goes on."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.config import Config, JournalSettings, NodeSettings
from reknit.errors import Gone, Refused
from reknit.node.admin import journal_requests
from reknit.node.admin.admin_requests import RUNNING_MAX
from reknit.outcome import Code
from reknit.server import build_node
from tests.node.fabric import TOPIC, client, fabric, numbers, run

pytestmark = pytest.mark.real

REQUESTS = [
    *("checkpoint", "span", "read", "records", "find", "index", "streams", "align", "skip", "trail", "vias"),
    *("dead_letters", "redrive", "drop_dead_letters", "pause", "paused", "resume"),
    *("links", "link_remove", "routes", "anycast", "pipeline"),
]
NAMES = [
    *("position", "start", "stop", "bytes_max", "time_us", "seq", "topic", "source", "sources", "pattern"),
    *("wanted", "after", "limit", "level", "chosen", "ranges"),
]
VALUES: list[Any] = [
    *(-1, 0, 5, 10**12, (1 << 64) - 1, -(1 << 63), math.nan, math.inf, -math.inf, None, True),
    *("", "**", "a//b", "7", "-5", TOPIC, b"", b"s" * 16, [], [[9, 2]], {}, {"a": 1}),
]


@pytest.mark.parametrize("seed", range(3))
def test_every_request_is_answered_whatever_its_arguments_are(seed: int) -> None:
    rng = Random(seed)

    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            await session.publish_many(TOPIC, numbers(1, 50))
            asks = [
                session.router.admin_requests.ask(
                    rng.choice(REQUESTS), {name: rng.choice(VALUES) for name in rng.sample(NAMES, 6)}
                )
                for _ in range(500)
            ]
            answers = await asyncio.gather(*asks, return_exceptions=True)
            assert {type(one) for one in answers if isinstance(one, Exception)} <= {Refused, Gone}
            assert [one for one in answers if not isinstance(one, Exception)]
            await session.publish(TOPIC, b"50")

    run(test)


@pytest.mark.parametrize(
    ("what", "args"),
    [
        ("skip", {"topic": "group/a", "source": "", "start": 1, "stop": 5}),
        ("skip", {"topic": "group/a", "source": "5e" * 17, "start": 1, "stop": 5}),
    ],
)
def test_what_could_not_be_read_again_is_not_recorded(
    tmp_path: Path, what: str, args: dict[str, Any]
) -> None:
    settings = NodeSettings(name="test", data_dir=tmp_path, listen=("tcp://127.0.0.1:0",))
    on_disk = Config(node=settings, journal=JournalSettings(kind="disk"))

    async def test() -> None:
        async with build_node(on_disk) as node, client(node) as session:
            with pytest.raises(Refused, match="can't be read"):
                await session.router.admin_requests.ask(what, args)
            await session.publish(TOPIC, b"1")
        async with build_node(on_disk) as node, client(node) as session:
            assert (await session.ask("records", position=0))["records"] is not None
            await session.publish(TOPIC, b"2")

    run(test)


@pytest.mark.parametrize("source", [10**12, 16, "s" * 16, None])
def test_a_source_that_is_not_bytes_is_refused(source: object) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            with pytest.raises(Refused, match="source must be bytes"):
                await session.ask_raw("find", topic=TOPIC, source=source, start=1, stop=2)

    run(test)


@pytest.mark.parametrize("number", [1e308, -1e300, math.inf, 1 << 63, (1 << 64) - 1])
def test_a_number_that_no_answer_could_name_is_refused(number: float) -> None:
    """Before there is one: a page of dead letters says where the next begins."""

    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            await session.publish(TOPIC, b"1")
            for what, args in (
                ("read", {"position": number}),
                ("dead_letters", {"after": number}),
                ("dead_letters", {"before": number}),
                ("redrive", {"after": number}),
                ("drop_dead_letters", {"after": number, "stop": number}),
            ):
                with pytest.raises(Refused) as refused:
                    await session.ask(what, **args)
                assert refused.value.code == Code.INVALID_ARGUMENT
            await session.publish(TOPIC, b"2")

    run(test)


def test_an_answer_is_not_longer_than_was_asked_for() -> None:
    """Unless a single batch is: whoever reads gets on."""

    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            for number in range(4):
                await session.publish_many(TOPIC, [bytes([number]) * 1000] * 10)
            position, sizes = 0, []
            while position < node.journal.end:
                body, data = await session.ask_raw("read", position=position, bytes_max=15_000)
                position = body["next"]
                sizes.append(len(data))
            assert len(sizes) == 4
            assert max(sizes) <= 15_000
            body, data = await session.ask_raw("read", position=0, bytes_max=1)
            assert len(data) == sizes[0]

    run(test)


def test_a_node_that_aligns_asks_for_few_buckets_at_a_time() -> None:
    """All at once would hold up a node with very many sources."""

    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            await session.publish(TOPIC, b"1")
            held = [
                await session.ask("align", pattern="**", level="spans", buckets=[at, at + 1])
                for at in range(0, 64, 2)
            ]
            assert sum(len(one["spans"]) for one in held) == 1
            with pytest.raises(Refused, match="ask for 2 buckets at a time, not 3"):
                await session.ask("align", pattern="**", level="spans", buckets=[1, 2, 3])
            with pytest.raises(Refused):
                await session.ask("align", pattern="**", level="spans", buckets=[64])

    run(test)


def test_events_that_do_not_fit_into_an_answer_are_found_with_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_requests, "READ_BYTES_MAX", 3_000)

    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            publisher = session.publisher(TOPIC)
            for number in range(6):
                await publisher.publish_many([bytes([number]) * 100] * 10)
            start, stop, questions = 1, 61, 0
            while start < stop:
                body, data = await session.ask_raw(
                    "find", topic=TOPIC, source=publisher.source, start=start, stop=stop
                )
                assert body["first_held"] == 1
                assert len(data) <= 3_000
                while data:
                    batch = Batch.parse(data)
                    assert batch.first == start
                    start, data = batch.stop, data[batch.head.length :]
                assert body["next"] == start
                questions += 1
            assert questions > 1

    run(test)


def test_a_client_has_only_so_many_long_requests_answered_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        may_end = asyncio.Event()

        async def slow(requests: object, args: object) -> dict[str, int]:
            await may_end.wait()
            return {}

        monkeypatch.setattr(journal_requests.JournalRequests, "checkpoint", slow)
        async with fabric() as [node], client(node) as session, client(node) as other:
            running = [
                asyncio.create_task(session.ask("checkpoint", pattern="**")) for _ in range(RUNNING_MAX)
            ]
            await session.ask("span")  # the requests before it have arrived
            with pytest.raises(Refused, match="too many requests") as refused:
                await session.ask("checkpoint", pattern="**")
            assert refused.value.code == Code.RESOURCE_EXHAUSTED
            running.append(asyncio.create_task(other.ask("checkpoint", pattern="**")))
            await other.ask("span")
            may_end.set()
            assert await asyncio.gather(*running) == [{}] * (RUNNING_MAX + 1)
            assert await session.ask("checkpoint", pattern="**") == {}, "those that ended do not count"

    run(test)
