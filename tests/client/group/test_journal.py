"""`session.group`: groups are topics. The node's journal holds every event of a group once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.batch import Batch
from reknit.config import Config, JournalSettings, MulticastSettings, SecuritySettings, load
from reknit.errors import LocalError
from reknit.node.node import Node
from reknit.protocol.multicast.settings import GroupSettings
from reknit.server import build_node
from reknit.view import View
from tests.client.node_thread import ANY_PORT, serving
from tests.multicast_addresses import multicast_address
from tests.tokens import write_tokens

pytestmark = pytest.mark.real


def quick(**settings: Any) -> Config:
    """A multicast address that no other test uses, and little patience."""
    group = MulticastSettings(address=multicast_address(), discover_s=0.1, beat_s=0.1, skip_s=0.2, **settings)
    return Config(node=ANY_PORT, journal=JournalSettings(kind="memory"), group=group)


@pytest.fixture
def node() -> Iterator[Node]:
    with serving() as node:
        yield node


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await main()

    asyncio.run(limited())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  (there is no one event to wait for)
        await asyncio.sleep(0.01)


def published(node: Node, topic: str) -> dict[bytes, list[tuple[int, int]]]:
    return {
        source: seqs.ranges()
        for (name, source), seqs in node.journal.ledger.published.items()
        if name == topic
    }


async def read(group: Any, count: int) -> list[bytes]:
    out: list[bytes] = []
    async for event in group:
        out.append(event.payload)
        if len(out) == count:
            break
    return out


def test_what_a_group_carries_is_in_the_journal_once_however_many_members_bring_it(node: Node) -> None:
    config, url = quick(), node.urls[0]

    async def main() -> None:
        async with (
            reknit.connect(url, name="a", config=config) as one,
            reknit.connect(url, config=config) as two,
        ):
            async with one.group("robots") as a, two.group("robots", member="b") as b:
                await until(lambda: len(a.members) == len(b.members) == 2)
                await a.send_many([b"%d" % number for number in range(1000)])
                await b.send(b"from b")
                for group in (a, b):
                    assert sorted(await read(group, 1001))[-1] == b"from b"
                assert [member.name for member in a.members] == ["a", "b"]
                sources = (a.id, b.id)
            assert published(node, "group/robots") == {sources[0]: [(1, 1001)], sources[1]: [(1, 2)]}
            assert node.core.intake.duplicates >= 1000

    run(main)


def test_subscribers_of_the_topic_get_what_the_group_carries_and_the_ledger_balances(node: Node) -> None:
    config, url = quick(), node.urls[0]

    async def main() -> None:
        async with reknit.connect(url, config=config) as session:
            async with session.subscribe("group/**", name="reader") as reader:
                async with session.group("robots") as group:
                    await group.send_many([b"one", b"two"])
                    source = group.id
                got = []
                async for event in reader:
                    got.append((event.topic, event.source, event.seq, event.payload))
                    if len(got) == 2:
                        break
                assert got == [("group/robots", source, 1, b"one"), ("group/robots", source, 2, b"two")]
            [row] = [row for row in await session.ledger() if row["topic"] == "group/robots"]
            assert (row["published"], row["accepted"], row["lost"]) == (2, 2, 0)

    run(main)


def test_events_that_no_member_brings_are_lost_in_the_node_s_ledger(node: Node) -> None:
    """A member that joins late brings what follows on a gap: after a while the node goes on behind it."""
    config, url = quick(), node.urls[0]

    async def main() -> None:
        async with reknit.connect(url, config=config) as session, session.group("robots") as group:
            journal = group._journal
            assert journal is not None
            source = b"s" * 16
            journal.put(Batch.build(source, group.topic, 1, [b"1", b"2"], time_us=0))
            journal.put(Batch.build(source, group.topic, 5, [b"5", b"6"], time_us=0))
            await until(lambda: published(node, group.topic).get(source) == [(1, 3), (5, 7)])
            skipped = node.journal.ledger.skipped[group.topic, source]
            assert skipped.ranges() == [(3, 5)]

    run(main)


def test_a_gap_that_another_member_fills_is_not_lost(node: Node) -> None:
    config, url = quick(), node.urls[0]

    async def main() -> None:
        one, two = (reknit.connect(url, config=config) for _ in range(2))
        async with one, two, one.group("robots") as a, two.group("robots") as b:
            assert a._journal is not None
            assert b._journal is not None
            source = b"s" * 16
            a._journal.put(Batch.build(source, a.topic, 1, [b"1", b"2"], time_us=0))
            await until(lambda: published(node, a.topic).get(source) == [(1, 3)])
            b._journal.put(Batch.build(source, a.topic, 5, [b"5", b"6"], time_us=0))
            a._journal.put(Batch.build(source, a.topic, 3, [b"3", b"4"], time_us=0))
            await until(lambda: published(node, a.topic).get(source) == [(1, 7)])
            assert (a.topic, source) not in node.journal.ledger.skipped

    run(main)


def test_only_what_groups_carry_can_be_skipped(node: Node) -> None:
    async def main() -> None:
        async with reknit.connect(node.urls[0]) as session:
            with pytest.raises(reknit.Refused, match="only events of groups"):
                await session.ask("skip", topic="plant/temp", source="73" * 16, start=1, stop=2)

    run(main)


def test_members_with_names_of_their_own_may_bring_each_other_s_events(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "ann-token", "bob": "bob-token"})
    allow = ("ann publish group/**", "bob publish group/**")
    config = quick()
    security = SecuritySettings(tokens_file=tokens, allow=allow)

    async def main(url: str, sources: list[bytes]) -> None:
        one = reknit.connect(url, config=config, token="ann-token")
        two = reknit.connect(url, config=config, token="bob-token")
        async with one, two, one.group("robots") as a, two.group("robots") as b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            await a.send_many([b"1", b"2"])
            for group in (a, b):
                assert await read(group, 2) == [b"1", b"2"]
            assert b._journal is not None
            c = b"c" * 16
            b._journal.put(Batch.build(c, b.topic, 1, [b"1"], time_us=0))
            b._journal.put(Batch.build(c, b.topic, 3, [b"3"], time_us=0))
            await asyncio.gather(*(one.flush() for one in b._journal._publishers.values()))
            sources += [a.id, c]

    sources: list[bytes] = []
    with serving(replace(config, security=security)) as node:
        run(lambda: main(node.urls[0], sources))
        assert published(node, "group/robots") == {sources[0]: [(1, 3)], sources[1]: [(1, 2), (3, 4)]}
        assert not [topic for topic, _ in node.journal.ledger.published if "dead" in topic]


def test_a_group_can_be_kept_out_of_the_journal(node: Node) -> None:
    config = quick()

    async def main() -> None:
        session = reknit.connect(node.urls[0], config=config)
        async with session, session.group("robots", is_journaled=False) as group:
            await group.send(b"hello")
            assert await read(group, 1) == [b"hello"]
        assert published(node, "group/robots") == {}

    run(main)


def test_what_is_sent_while_the_node_is_away_comes_to_it_later() -> None:
    group = quick().group

    async def main() -> None:
        first = build_node(Config(node=ANY_PORT, journal=JournalSettings(kind="memory")))
        await first.start()
        url = first.urls[0]
        async with (
            reknit.connect(url, config=Config(group=group)) as session,
            session.group("robots") as robots,
        ):
            await first.stop()
            await until(lambda: not session.is_connected)
            await robots.send_many([b"1", b"2"])
            assert await read(robots, 2) == [b"1", b"2"]
            listen = ANY_PORT.__class__(name="second", listen=(url,))
            second = build_node(Config(node=listen, journal=JournalSettings(kind="memory")))
            await second.start()
            await until(lambda: published(second, "group/robots") == {robots.id: [(1, 3)]})
        await second.stop()

    run(main)


def test_the_blocking_session_has_groups_too(node: Node) -> None:
    config, url = quick(), node.urls[0]
    with reknit.connect_sync(url, config=config) as one, reknit.connect_sync(url, config=config) as two:
        views: list[int] = []
        is_complete = threading.Event()

        def on_view(view: View) -> None:
            views.append(len(view.members))
            if views[-1] == 2:
                is_complete.set()

        first = one.group("robots", member="a")
        first.on_view = on_view
        with first as a, two.group("robots", member="b", discard_own=True) as b:
            assert is_complete.wait(150)
            a.send(b"hello")
            a.send_many([b"%d" % number for number in range(100)])
            got = [event.payload for _, event in zip(range(101), b, strict=False)]
            assert got == [b"hello", *(b"%d" % number for number in range(100))]
            assert len(list(zip(range(101), a, strict=False))) == 101
            assert [member.name for member in b.members] == ["a", "b"]
            assert a.ledger.rows()[0][1:] == (101, 0, 101, 0)
            a.settled()
            source = a.me.id
        assert views[0] == 1
    assert published(node, "group/robots") == {source: [(1, 102)]}


def test_members_can_be_given_as_a_list(node: Node) -> None:
    config = Config(group=MulticastSettings(address="", discover_s=5.0))

    async def main() -> None:
        async with reknit.connect(node.urls[0], config=config) as session:
            one = session.group("robots", member="a", is_given=True)
            two = session.group("robots", member="b", is_given=True, is_journaled=False)
            async with one as a, two as b:
                assert [member.name for member in a.members] == ["a"]
                for group in (a, b):
                    group.give([a.me, b.me])
                await a.send(b"hello")
                assert await read(b, 1) == [b"hello"]
                assert [member.name for member in b.members] == ["a", "b"]
                with pytest.raises(LocalError, match=r"add group\.me"):
                    a.give([b.me])
                for group in (a, b):
                    group.give([group.me])

    run(main)


def test_members_that_find_each_other_can_not_be_given(node: Node) -> None:
    config = quick()

    async def main() -> None:
        session = reknit.connect(node.urls[0], config=config)
        async with session, session.group("robots") as group:
            with pytest.raises(LocalError, match="is_given=True"):
                group.give([group.me])

    run(main)


def test_every_setting_of_a_group_is_in_the_configuration_with_the_same_default() -> None:
    section, settings = MulticastSettings(), GroupSettings()
    assert GroupSettings.of(section) == settings
    config = load(environ={"REKNIT_GROUP__SLOW_MEMBER": "evict", "REKNIT_GROUP__CAPACITY_EVENTS": "100"})
    assert GroupSettings.of(config.group).slow_member == "evict"
    assert GroupSettings.of(config.group).ack_events == 25
