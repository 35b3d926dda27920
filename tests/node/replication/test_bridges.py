"""Bridges between nodes that are not linked: routes, store and forward, and no loops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reknit.client.session import Session, connect
from reknit.config import Config, MulticastSettings
from reknit.errors import Refused
from reknit.event import Event
from reknit.outcome import Code
from tests.multicast_addresses import multicast_address
from tests.node.links.test_links import TOPIC, numbers, take
from tests.node.node_processes import fabric, run, until

pytestmark = pytest.mark.real


async def refused(session: Session, what: str, source: str, target: str) -> Code:
    with pytest.raises(Refused) as caught:
        await getattr(session, what)(source, target)
    return Code(caught.value.code)


def test_routes_are_added_and_deleted_with_the_right_codes(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="ab") as made:
            a, b = made.url("a"), made.url("b")
            async with connect(a) as session:
                assert await refused(session, "add_route", "here", a) is Code.INVALID_ARGUMENT
                assert (
                    await refused(session, "add_route", b, b.replace("127.0.0.1", "localhost"))
                    is Code.INVALID_ARGUMENT
                )
                assert await refused(session, "add_route", "nonsense", b) is Code.INVALID_ARGUMENT
                assert await refused(session, "delete_route", "here", b) is Code.NOT_FOUND
                await session.add_route("here", b)
                assert await refused(session, "add_route", "here", b) is Code.ALREADY_EXISTS
                await session.add_route(b, "here")
                assert [(row["in"], row["out"]) for row in await session.routes()] == sorted(
                    [("here", b), (b, "here")]
                )
                await session.delete_route("here", b)
                assert await refused(session, "delete_route", "here", b) is Code.NOT_FOUND
                async with connect(b) as other:

                    async def forgotten() -> bool:
                        names = [row["name"] for row in (await session.status())["subscribers"]]
                        return not any(name.startswith("route/a/tcp") for name in names)

                    await until(forgotten)
                    assert any(
                        row["name"] == "route/a/here/**" for row in (await other.status())["subscribers"]
                    )

    run(test)


def test_a_streamer_brings_events_from_one_node_to_another_and_waits_for_it(tmp_path: Path) -> None:
    def reknit(*args: str) -> str:
        command = [sys.executable, "-m", "reknit", "route", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=150, check=True).stdout

    async def test() -> None:
        with fabric(tmp_path, names="abs") as made:
            a, b, s = (made.url(name) for name in "abs")
            made.nodes["b"].kill()
            reknit("add", a, b, "--pattern", "plant/**", "--node", s)
            async with connect(a) as session:

                async def subscribed() -> bool:
                    rows = (await session.status())["subscribers"]
                    return any(
                        row["name"] == f"route/s/{b}/plant/**" and row["state"] != "away" for row in rows
                    )

                await until(subscribed)
                await session.publish_many(TOPIC, numbers(0, 100))
                await session.publish("office/light", b"not plant")
                made.nodes["b"].start()
                async with connect(b) as there, there.subscribe("**", history=True) as events:
                    assert await take(events, 100) == list(range(100))
                    made.nodes["s"].kill()
                    await session.publish_many(TOPIC, numbers(100, 200))
                    made.nodes["s"].start()
                    assert await take(events, 100) == list(range(100, 200))

                async def settled() -> bool:
                    [row] = [
                        row for row in await session.ledger() if row["subscriber"].startswith("route/s/")
                    ]
                    return bool(row["balanced"]) and row["accepted"] == row["published"] == 200

                await until(settled)
            [row] = json.loads(reknit("list", "--node", s, "--json"))
            assert (row["in"], row["out"], row["pattern"], row["problem"]) == (a, b, "plant/**", "")

    run(test)


def test_what_a_group_carries_is_bridged_like_any_topic(tmp_path: Path) -> None:
    config = Config(group=MulticastSettings(address=multicast_address(), discover_s=0.1, beat_s=0.1))

    came: list[Event] = []

    async def test() -> None:
        with fabric(tmp_path, names="ab") as made:
            a, b = made.url("a"), made.url("b")
            async with connect(a, config=config) as session:
                await session.add_route("here", b, pattern="group/**")
                async with session.group("robots") as group:
                    await group.send_many([b"1", b"2", b"3"])
                    source = group.id
                async with connect(b) as there, there.subscribe("group/robots", history=True) as events:
                    async for event in events:
                        came.append(event)
                        if len(came) == 3:
                            break
                assert [(event.topic, event.source, event.seq, event.payload) for event in came] == [
                    ("group/robots", source, seq, b"%d" % seq) for seq in (1, 2, 3)
                ]

    run(test)


def test_nothing_goes_round_and_hops_are_limited(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="abcd") as made:
            urls = {name: made.url(name) for name in "abcd"}
            made.nodes["d"].kill()
            made.nodes["c"].kill()
            made.nodes["c"].command += ["--set", "links.hops_max=2"]
            made.nodes["c"].start()
            made.nodes["d"].start()
            for one, two in (
                ("a", "b"),
                ("b", "c"),
                ("c", "a"),
                ("c", "d"),
            ):  # a ring, and a way out of it that is one bridge too long
                async with connect(urls[one], wait_s=60) as session:
                    await session.add_route("here", urls[two])
            async with connect(urls["a"]) as session:
                await session.publish_many(TOPIC, numbers(0, 50))
                for name in "bc":
                    async with connect(urls[name]) as there, there.subscribe(TOPIC, history=True) as events:
                        assert await take(events, 50) == list(range(50))

            async with connect(urls["c"]) as session:

                async def ended() -> bool:
                    rows = {row["subscriber"]: row for row in await session.ledger() if row["topic"] == TOPIC}
                    round_, out = rows[f"route/c/{urls['a']}/**"], rows[f"route/c/{urls['d']}/**"]
                    return (round_["accepted"], out["dead_lettered"]) == (50, 50)

                await until(ended)
            async with connect(urls["a"]) as session:
                status = await session.status()
                assert status["intake"]["duplicates"] == 0, "nothing came back"
            async with connect(urls["d"]) as session:
                assert TOPIC not in [row["topic"] for row in (await session.status())["topics"]]

    run(test)


def test_what_has_been_at_a_node_that_was_away_does_not_go_back_to_it(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="abc") as made:
            urls = {name: made.url(name) for name in "abc"}
            for one, two in (("a", "b"), ("b", "c"), ("c", "a")):
                async with connect(urls[one]) as session:
                    await session.add_route("here", urls[two])
            made.nodes["c"].kill()
            async with connect(urls["a"]) as session:
                await session.publish_many(TOPIC, numbers(0, 50))
            async with connect(urls["b"]) as session, session.subscribe(TOPIC, history=True) as events:
                assert await take(events, 50) == list(range(50))
            made.nodes["a"].kill()
            made.nodes["c"].start()
            async with connect(urls["c"], wait_s=60) as session:
                async with session.subscribe(TOPIC, history=True) as events:
                    assert await take(events, 50) == list(range(50))
                made.nodes["a"].start()

                async def accepted() -> bool:
                    rows = {row["subscriber"]: row for row in await session.ledger() if row["topic"] == TOPIC}
                    return bool(rows[f"route/c/{urls['a']}/**"]["accepted"] == 50)

                await until(accepted)
            async with connect(urls["a"]) as session:
                assert (await session.status())["intake"]["duplicates"] == 0

    run(test)


def test_an_event_whose_ttl_ends_while_the_target_is_away_becomes_a_dead_letter_where_it_waits(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="ab") as made:
            a, b = made.url("a"), made.url("b")
            async with connect(a) as session:
                await session.add_route("here", b, pattern="plant/**")
                await session.publish(TOPIC, b"0")
                async with connect(b) as there, there.subscribe(TOPIC, history=True) as events:
                    assert await take(events, 1) == [0]
                made.nodes["b"].kill()

                publisher = session.publisher("plant/short", ttl_ms=500)
                await publisher.publish_many(numbers(0, 10))

                async def expired() -> bool:
                    rows = {row["topic"]: row for row in await session.ledger()}
                    return bool(rows["plant/short"]["dead_lettered"] == 10)

                await until(expired)
                letters = await session.ask("dead_letters")
                assert {letter["reason"] for _, letter in letters["letters"]} == {"expired"}
                assert [row["waiting_bytes"] for row in await session.routes()] == [0]
                made.nodes["b"].start()
            async with connect(a) as session:
                await session.publisher("plant/short", source=publisher.source).publish(b"10")
            async with connect(b, wait_s=60) as there, there.subscribe("plant/short", history=True) as events:
                assert await take(events, 1) == [10], "what is past its ttl is not copied"

    run(test)
