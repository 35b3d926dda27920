"""Rules and tokens of a node change under load: the innocent lose no event and no connection, the others end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import Refused, ReknitError
from reknit.outcome import Code
from reknit.processes.process import NodeProcess, ending
from tests.guarded_files import GuardedFiles
from tests.node.node_processes import run, until
from tests.real.load import Load

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SECRETS = {name: f"{name}-token" for name in ("ann", "bob", "eve", "mal", "root")}
INNOCENT = ("ann publish plant/**", "bob subscribe plant/**", "root admin")
ROUNDS = 4


async def reason(events: Subscription) -> Refused:
    """Why a subscription ended."""
    try:
        while True:
            await anext(events)
    except Refused as ended:
        return ended


async def addresses(url: str) -> set[str]:
    """From where peers other than this question are connected."""
    async with connect(url, token="root-token", name="asks") as root:
        return {row["address"] for row in (await root.status())["peers"] if row["name"] != "asks"}


def test_a_change_of_rules_and_tokens_under_load_touches_only_those_whom_it_concerns(tmp_path: Path) -> None:
    files = GuardedFiles(tmp_path, SECRETS, *INNOCENT, "eve subscribe **", "mal subscribe **")
    node = NodeProcess(tmp_path, "--config", str(files.settings))
    load = Load()

    async def one_round(number: int, before: set[str]) -> None:
        async with connect(node.url, token="eve-token") as eve, connect(node.url, token="mal-token") as mal:
            with suppress(ReknitError):  # what the node ended can't be left properly
                async with eve.subscribe("plant/*") as lost, eve.subscribe("office/*"), mal.subscribe("**"):
                    await load.go_on()
                    there = await addresses(node.url) - before
                    assert len(there) == 2
                    files.allow(*INNOCENT, "eve subscribe office/*", "mal subscribe **")
                    if number % 2:
                        os.kill(node.pid, signal.SIGHUP)  # otherwise the node notices by itself
                    assert (await reason(lost)).code == Code.PERMISSION_DENIED
                    assert there <= await addresses(node.url), "only one subscription has ended"
                    files.tokens({name: secret for name, secret in SECRETS.items() if name != "mal"})
                    await until(lambda: "the token 'mal' of mal was revoked" in node.output())
                    await load.go_on()
        files.tokens(SECRETS)
        files.allow(*INNOCENT, "eve subscribe **", "mal subscribe **")
        await until(lambda: can(node.url, "mal-token", "plant/*"))
        await until(lambda: can(node.url, "eve-token", "plant/*"))

    async def test() -> None:
        async with (
            connect(node.url, token="ann-token") as ann,
            connect(node.url, token="bob-token") as bob,
            bob.subscribe("plant/*") as events,
        ):
            work = [asyncio.create_task(load.publish(ann)), asyncio.create_task(load.receive(events))]
            before = await addresses(node.url)
            for number in range(ROUNDS):
                await one_round(number, before)
            assert await addresses(node.url) >= before, "no innocent connection was dropped"
            load.is_over = True
            await work[0]
            await until(lambda: len(load.received) >= load.published)
            work[1].cancel()
        assert load.received == list(range(load.published)), "no event was lost"

    with ending(node):
        node.start()
        run(test, 280)


async def can(url: str, token: str, pattern: str) -> bool:
    """Whether a subscription is permitted now."""
    try:
        async with connect(url, token=token, wait_s=0.0) as session, session.subscribe(pattern):
            return True
    except ReknitError:
        return False
