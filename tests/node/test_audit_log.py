"""The audit trail of a node: what happens at its doors and by its admins is on `reknit/audit`, by the node alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import reknit
from reknit.audit import AUDIT_TOPIC, AuditEntry, read_entry
from reknit.batch import Batch
from reknit.config import Config, JournalSettings, NodeSettings, SecuritySettings
from reknit.connection.node_connection import NodeConnection
from reknit.errors import Refused
from reknit.node.node import Node
from reknit.outcome import Code
from reknit.wire.messages import COPIER, Refuse
from tests.client.node_thread import ANY_PORT, serving
from tests.client.rpc.shared import run, until
from tests.guarded_files import GuardedFiles
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

MEMORY = JournalSettings(kind="memory")
ALLOW = ("ann publish plant/**", "eye subscribe reknit/audit", "root admin", "root subscribe **")


@contextmanager
def guarded(folder: Path, **more: Any) -> Iterator[Node]:
    tokens = write_tokens(folder / "tokens", {name: f"{name}-token" for name in ("ann", "eye", "root")})
    security = {"tokens_file": str(tokens), "allow": ALLOW} | more.pop("security", {})
    parts = {"node": ANY_PORT, "journal": MEMORY} | more
    with serving(Config(security=SecuritySettings(**security), **parts)) as node:
        yield node


def entries(node: Node) -> list[AuditEntry]:
    """All entries in the journal."""
    found = []
    for source, last in node.journal.sources(AUDIT_TOPIC).items():
        for batch in node.find(AUDIT_TOPIC, source, 1, last + 1):
            found += [read_entry(payload) for payload in batch.payloads()]
    return found


def test_a_rule_for_all_topics_and_a_subscription_to_them_leave_the_trail_out(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with reknit.connect(node.urls[0], token="all-token") as session:
            async with session.subscribe("**", history=True) as events:
                await session.publish("plant/a", b"the only one")
                assert (await anext(events)).topic == "plant/a"
            for what in ("read", "records", "span", "index"):
                with pytest.raises(Refused, match=r"add 'all subscribe reknit/\*\*' to security\.allow"):
                    await session.ask(what, position=0)
            assert any(row["topic"] == "plant/a" for row in await session.ask("topics"))
            with pytest.raises(Refused, match="all may not subscribe to 'reknit/audit'"):
                async with session.subscribe("reknit/audit"):
                    pass
        async with reknit.connect(node.urls[0], token="eye-token") as session:
            async with session.subscribe("reknit/audit", history=True) as trail:
                assert (await anext(trail)).topic == "reknit/audit"
            await session.ask("span")

    allow = ("all publish **", "all subscribe **", "eye subscribe **", "eye subscribe reknit/**")
    names = {name: f"{name}-token" for name in ("all", "eye")}
    security = {"tokens_file": write_tokens(tmp_path / "two", names), "allow": allow}
    with guarded(tmp_path, security=security) as node:
        run(program(node))


def test_logins_refusals_and_orders_are_written_and_readable_by_rule(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        url = node.urls[0]
        with pytest.raises(Refused):
            async with reknit.connect(url, token="stolen-token"):
                pass
        async with reknit.connect(url, token="ann-token") as ann:
            with pytest.raises(Refused):
                await ann.publish("office/a", b"a secret payload")
            with pytest.raises(Refused):
                await ann.ask("pause", pattern="plant/**")
            with pytest.raises(Refused):
                async with ann.subscribe(AUDIT_TOPIC):
                    pass
            ann.router.publishers.clear()
        async with reknit.connect(url, token="root-token") as root:
            await root.pause("plant/**")
            await root.resume("plant/**")
            with pytest.raises(Refused):
                await root.ask("own", owner="bob", subscriber="nobody")
        async with (
            reknit.connect(url, token="eye-token") as eye,
            eye.subscribe(AUDIT_TOPIC, history=True) as trail,
        ):
            told = []
            async for event in trail:
                told.append(read_entry(event.payload))
                if told[-1].who == "eye":
                    break
        rows = [(one.kind, one.action, one.who, one.code) for one in told]
        assert rows == [
            ("login", "login", "anonymous", "UNAUTHENTICATED"),
            ("login", "login", "ann", "OK"),
            ("refusal", "denied", "ann", "PERMISSION_DENIED"),
            ("login", "login", "root", "OK"),
            ("order", "pause", "root", "OK"),
            ("order", "resume", "root", "OK"),
            ("order", "own", "root", "INVALID_ARGUMENT"),
            ("login", "login", "eye", "OK"),
        ]
        assert told[4].details == {"pattern": "plant/**"}
        assert all((one.version, one.node, one.address) == (1, "test", "127.0.0.1") for one in told)
        [source] = node.journal.sources(AUDIT_TOPIC)
        written = b"".join(batch.data for batch in node.find(AUDIT_TOPIC, source, 1, 99))
        assert b"-token" not in written
        assert b"secret" not in written

    with guarded(tmp_path) as node:
        run(program(node))


def test_many_failed_logins_are_two_entries(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        for _ in range(20):
            with pytest.raises(Refused):
                async with reknit.connect(node.urls[0], token="guessed"):
                    pass

    with guarded(tmp_path) as node:
        run(program(node))
    assert [(entry.who, entry.code, entry.count) for entry in entries(node)] == [
        ("anonymous", "UNAUTHENTICATED", 1),
        ("anonymous", "UNAUTHENTICATED", 19),
    ]


def test_a_flood_of_refused_events_is_two_entries_with_their_number(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        for _ in range(10):
            async with reknit.connect(node.urls[0]) as stranger:
                with pytest.raises(Refused):
                    await stranger.publish_many("plant/1", [b"junk"] * 100)
                stranger.router.publishers.clear()

    with guarded(tmp_path) as node:
        run(program(node))
    refusals = [entry for entry in entries(node) if entry.kind == "refusal"]
    assert [one.who for one in refusals] == ["anonymous", "anonymous"]
    assert sum(one.events for one in refusals) == 1_000


def test_a_redrive_is_an_order_with_its_count(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with reknit.connect(node.urls[0], token="root-token") as root:
            await root.ask("redrive", wanted={"reason": "rejected"}, is_dry=True)
            await root.ask("redrive", wanted={"reason": "rejected"})
            await root.ask("drop_dead_letters", wanted={"topic": "plant/**"})
        orders = [(one.action, one.details) for one in entries(node) if one.kind == "order"]
        assert orders == [
            ("redrive", {"wanted": "reason=rejected"}),
            ("drop_dead_letters", {"wanted": "topic=plant/**"}),
        ]

    with guarded(tmp_path) as node:
        run(program(node))


def test_rules_that_are_read_again_are_a_change(tmp_path: Path) -> None:
    files = GuardedFiles(tmp_path, {"ann": "a-token"}, "ann publish plant/**")

    async def program(node: Node) -> None:
        files.allow("ann publish office/**")
        await until(lambda: bool(entries(node)))
        [entry] = entries(node)
        assert (entry.kind, entry.action, entry.who, entry.code) == ("change", "reload", "node", "OK")
        assert entry.details["what"] == "the list of rules"

    with serving(files.guard(Config(node=ANY_PORT, journal=MEMORY), audit="auto")) as node:
        run(program(node))


def test_the_trail_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def program(node: Node, count: int) -> None:
        async with reknit.connect(node.urls[0], token="root-token"):
            await until(lambda: len(entries(node)) == count)

    disk = JournalSettings(kind="disk")
    place = NodeSettings(name="test", data_dir=tmp_path / "data", listen=ANY_PORT.listen)
    for count in (1, 2):
        with guarded(tmp_path, node=place, journal=disk) as node:
            run(program(node, count))
            assert [one.who for one in entries(node)] == ["root"] * count
            assert len(node.journal.sources(AUDIT_TOPIC)) == 1


@pytest.mark.parametrize(("audit", "orders"), [("auto", []), ("on", [("pause", "anonymous")]), ("off", [])])
def test_without_rules_nothing_is_written_unless_it_is_on(
    audit: Literal["auto", "on", "off"], orders: list[tuple[str, str]]
) -> None:
    async def program(node: Node) -> None:
        async with reknit.connect(node.urls[0]) as session:
            await session.pause("plant/**")

    security = SecuritySettings(audit=audit)
    with serving(Config(node=ANY_PORT, journal=MEMORY, security=security)) as node:
        run(program(node))
        assert [(one.action, one.who) for one in entries(node)] == orders


@pytest.mark.parametrize("has_rules", [False, True])
@pytest.mark.parametrize("topic", [AUDIT_TOPIC, "reknit/dead-letters", "reknit/x"])
def test_nobody_else_publishes_below_reknit(tmp_path: Path, topic: str, has_rules: bool) -> None:
    allow = ("root publish **", "root admin", "root subscribe **") if has_rules else ()
    token = "root-token" if has_rules else ""

    async def program(node: Node) -> None:
        async with reknit.connect(node.urls[0], token=token) as session:
            with pytest.raises(Refused) as caught:
                await session.publish(topic, b"forged")
            assert caught.value.code == Code.PERMISSION_DENIED
            session.router.publishers.clear()
        assert topic == AUDIT_TOPIC or not node.journal.sources(topic)
        assert all(entry.who != "forged" for entry in entries(node))

    security = {"allow": allow} if has_rules else {"allow": (), "tokens_file": ""}
    with guarded(tmp_path, security=security) as node:
        run(program(node))


def test_the_trail_s_own_source_is_nobody_s_to_publish_as(tmp_path: Path) -> None:
    """Also not for who says that it copies events of another node, where there are no rules."""

    async def program(node: Node) -> None:
        told: list[Any] = []

        class Program:
            def connected(self, welcome: object) -> None: ...
            def disconnected(self) -> None: ...
            def received(self, items: list[Any]) -> None:
                told.extend(items)

        async with reknit.connect(node.urls[0]) as session:
            await session.pause("plant/**")
        source = next(iter(node.journal.sources(AUDIT_TOPIC)))
        peer = NodeConnection(node.urls[0], "copier", Program(), node.config, role=COPIER)
        await peer.open(5.0)
        batch = Batch.build(source, AUDIT_TOPIC, 2, [b"forged"], time_us=1)
        peer.send_buffers([batch.data])
        await until(lambda: any(isinstance(item, Refuse) for item in told))
        await peer.close()
        assert len(entries(node)) == 1

    security = SecuritySettings(audit="on")
    with serving(Config(node=ANY_PORT, journal=MEMORY, security=security)) as node:
        run(program(node))
