"""Links between real nodes: subscribers of every node get the events that are published on one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reknit.client.session import Session, connect
from reknit.client.subscribe.subscription import Subscription
from tests.node.node_processes import Fabric, fabric, run, until

pytestmark = pytest.mark.real

TOPIC = "plant/temp"


async def take(events: Subscription, count: int) -> list[int]:
    return [int((await anext(events)).payload) for _ in range(count)]


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def rows(made: Fabric, name: str) -> dict[str, dict[str, Any]]:
    async with connect(made.url(name), wait_s=60) as session:
        return {row["node"]: row for row in await session.ask("links")}


async def heard(made: Fabric, name: str, other: str) -> None:
    """Return when a node knows that another one subscribes."""

    async def look() -> bool:
        found = await rows(made, name)
        return other in found and found[other]["subscriptions"] > 0

    await until(look)


def test_one_copy_goes_over_each_link_of_a_ring(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "bc", "ac", names="d") as made:
            await made.sees("a", "bc")
            async with (
                connect(made.url("a")) as session,
                connect(made.url("b")) as at_b,
                connect(made.url("c")) as at_c,
                at_b.subscribe("plant/**") as of_b,
                at_c.subscribe("plant/*") as of_c,
            ):
                await heard(made, "a", "b")
                await heard(made, "a", "c")
                publisher = session.publisher(TOPIC)
                await publisher.publish_many(numbers(0, 1000))
                await session.publish("office/light", b"nobody wants it elsewhere")
                assert await take(of_b, 1000) == await take(of_c, 1000) == list(range(1000))
            sent = {
                (one, two): (await rows(made, one))[two]["sent"]
                for one in "abc"
                for two in "abc"
                if one != two
            }
            assert sent == {
                **dict.fromkeys([("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")], 0),
                ("a", "b"): 1000,
                ("a", "c"): 1000,
            }

    run(test)


def test_a_durable_subscriber_two_links_away_gets_what_it_missed(tmp_path: Path) -> None:
    """… while it was away, while the node between was dead, and while its own node was."""

    async def publish(session: Session, start: int) -> None:
        await session.publish_many(TOPIC, numbers(start, start + 100))

    async def audit(start: int, made: Fabric) -> None:
        async with connect(made.url("c")) as there, there.subscribe("plant/**", name="audit") as events:
            assert await take(events, 100) == list(range(start, start + 100))

    async def test() -> None:
        with fabric(tmp_path, "ab", "bc") as made:
            async with connect(made.url("c"), wait_s=60) as there, there.subscribe("plant/**", name="audit"):
                await heard(made, "a", "c")
            async with connect(made.url("a")) as session:
                await publish(session, 0)
                await audit(0, made)
                made.nodes["b"].kill()
                await publish(session, 100)
                made.nodes["b"].start()
                await audit(100, made)
                made.nodes["c"].kill()
                await publish(session, 200)
                made.nodes["c"].start()
                await audit(200, made)
            async with connect(made.url("c")) as there:
                [row] = [row for row in await there.ledger() if row["subscriber"] == "audit"]
                assert row["balanced"]
                assert (row["published"], row["accepted"]) == (300, 300)

    run(test)


def test_links_are_added_listed_and_removed_while_a_node_runs(tmp_path: Path) -> None:
    def reknit(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "reknit", "link", *args]
        environ = os.environ | {"COLUMNS": "200"}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150, check=False)

    async def test() -> None:
        with fabric(tmp_path, names="ab") as made:
            a, b = made.url("a"), made.url("b")
            assert reknit("add", f"{b}=7", "--node", a).returncode == 0
            await made.sees("a", "b")
            await made.sees("b", "a")
            [row] = json.loads(reknit("list", "--node", b, "--json").stdout)
            assert (row["node"], row["state"], row["cost"]) == ("a", "linked", 7)
            assert "linked" in reknit("list", "--node", a).stdout
            twice = reknit("add", b, "--node", a)
            assert (twice.returncode, "already" in twice.stderr) == (1, True)
            made.nodes["a"].kill()
            made.nodes["a"].start()
            await made.sees("a", "b")
            assert reknit("remove", b, "--node", a).returncode == 0
            await made.sees("a", "")
            missing = reknit("remove", b, "--node", a)
            assert (missing.returncode, "no link" in missing.stderr) == (1, True)

    run(test)


def test_two_nodes_of_one_name_are_not_linked(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, names="ab") as made:
            command = made.nodes["b"].command
            command[command.index("--name") + 1] = "a"
            made.nodes["b"].kill()
            command += ["--link", made.url("a")]
            made.nodes["b"].start()

            async def told() -> bool:
                async with connect(made.url("b")) as session:
                    return any("name of its own" in row["problem"] for row in await session.ask("links"))

            await until(told)

    run(test)


def test_a_node_whose_connection_hangs_is_noticed_by_its_silence(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "ac") as made:
            await made.sees("a", "bc")
            os.kill(made.nodes["b"].pid, signal.SIGSTOP)
            try:
                await made.sees("a", "c")
            finally:
                os.kill(made.nodes["b"].pid, signal.SIGCONT)
            await made.sees("a", "bc")

    run(test)


def test_both_ends_may_ask_for_the_same_link(tmp_path: Path) -> None:
    async def test() -> None:
        with fabric(tmp_path, "ab", "ba") as made:
            await made.sees("a", "b")
            async with connect(made.url("b")) as there, there.subscribe(TOPIC) as events:
                await heard(made, "a", "b")
                async with connect(made.url("a")) as session:
                    await session.publish_many(TOPIC, numbers(0, 10))
                    assert await take(events, 10) == list(range(10))

    run(test)
