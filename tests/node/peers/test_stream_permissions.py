"""Streams under rules: beginning a stream needs the same right as publishing a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import reknit
from reknit.address import Address
from reknit.batch import FLAG_ATTRIBUTES, Batch
from reknit.config import LimitSettings, TopicSettings
from reknit.envelope.attributes import Attributes, Kind
from reknit.envelope.columns import fields_of
from reknit.envelope.ids import IdMaker
from reknit.event import FLAG_STREAM
from reknit.node.node import Node
from reknit.outcome import Code, Outcome
from reknit.topic import Pattern
from reknit.wire.outcomes import RangeOutcome, Told
from reknit.wire.streams import Begin, Room
from tests.client.rpc.shared import run
from tests.node.peers.test_permission_checks import as_, guarded

pytestmark = pytest.mark.real

BALANCED = tuple(
    TopicSettings(pattern=Pattern(text), distribution="balanced") for text in ("plant/*", "up/**")
)
TOPIC = "plant/1"
OWN = b"o" * 16


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    allow = ("root as //vcu/10/1/FFFF",)
    with guarded(tmp_path, topics=BALANCED, allow=allow, limits=LimitSettings(sources_max=1)) as made:
        yield made


def stub(source: bytes, topic: str = TOPIC, flags: int = 0, **fields: Any) -> Batch:
    """An event without its payload."""
    return Batch.build(source, topic, 1, [b""], time_us=1, flags=flags | FLAG_STREAM, **fields)


async def begin(session: reknit.Session, batch: Batch) -> RangeOutcome | None:
    """Why the node does not let a stream begin; None if it has room for it."""
    answer: asyncio.Future[Room | Told] = asyncio.get_running_loop().create_future()
    streams = session.router.streams
    streams[batch.source] = cast(Any, SimpleNamespace(receive=answer.set_result))
    session.connection.send(Begin(batch.source, batch.topic, False, bytes(batch.data)))
    message = await answer
    del streams[batch.source]
    return message.rows[0] if isinstance(message, Told) else None


async def refused(session: reknit.Session, batch: Batch) -> tuple[int, str]:
    fate = await begin(session, batch)
    assert fate is not None
    assert fate.outcome == Outcome.REJECTED
    return fate.code, fate.text


async def published_by(who: reknit.Session, node: Node) -> bytes:
    """The source of who has just published on the topic."""
    await who.publish(TOPIC, b"1")
    [source] = [one for topic, one in node.journal.ledger.published if topic == TOPIC]
    return source


def test_nobody_begins_a_stream_under_the_source_of_another(node: Node) -> None:
    async def program(url: str) -> None:
        async with as_("ann", url) as ann, as_("root", url) as root, root.subscribe("plant/*", streams=True):
            source = await published_by(ann, node)
            code, text = await refused(root, stub(source))
            assert (code, "is not root's" in text) == (Code.UNAUTHENTICATED, True)
            assert await begin(root, stub(OWN)) is None

    run(program(node.urls[0]))


def test_a_source_of_one_topic_begins_no_stream_on_another(node: Node) -> None:
    async def program(url: str) -> None:
        async with as_("ann", url) as ann:
            source = await published_by(ann, node)
            code, text = await refused(ann, stub(source, "plant/2"))
            assert (code, "on another topic" in text) == (Code.UNAUTHENTICATED, True)

    run(program(node.urls[0]))


def test_sources_of_streams_leave_room_to_remember_those_that_last(node: Node) -> None:
    """The node of these tests remembers one source."""

    async def program(url: str) -> None:
        async with as_("ann", url) as ann, as_("root", url) as root, root.subscribe("plant/*", streams=True):
            for number in range(3):
                assert await begin(root, stub(bytes([number]) * 16)) is None
            assert (await refused(root, stub(await published_by(ann, node))))[0] == Code.UNAUTHENTICATED

    run(program(node.urls[0]))


def test_an_address_is_begun_from_by_who_may_be_it(node: Node) -> None:
    def from_(text: str) -> Batch:
        source = Address.parse(text)
        fields = fields_of([Attributes(id=IdMaker()(), type=Kind.PUBLISH, source=source)])
        return stub(OWN, source.topic, **fields)

    async def program(url: str) -> None:
        async with as_("root", url) as root, root.subscribe("up/**", streams=True):
            code, text = await refused(root, from_("//mcu/10/1/8001"))
            assert (code, "may not be" in text) == (Code.UNAUTHENTICATED, True)
            assert await begin(root, from_("//vcu/10/1/8001")) is None

    run(program(node.urls[0]))


def test_unsound_attributes_begin_nothing(node: Node) -> None:
    async def program(url: str) -> None:
        async with as_("root", url) as root:
            code, text = await refused(root, stub(OWN, flags=FLAG_ATTRIBUTES))
            assert (code, "id is missing" in text) == (Code.INVALID_ARGUMENT, True)

    run(program(node.urls[0]))
