"""Rules on a real node: it refuses a forbidden request before it changes anything, and tells the publisher."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.address import Address
from reknit.batch import Batch
from reknit.client.group.journal import GroupJournal, GroupSourcePublisher
from reknit.config import (
    Config,
    JournalSettings,
    NodeSettings,
    RecoverySettings,
    SecuritySettings,
    TransportSettings,
)
from reknit.connection.node_connection import NodeConnection
from reknit.envelope.attributes import Attributes, Kind, Priority
from reknit.envelope.ids import IdMaker
from reknit.errors import Refused, RequestFailed
from reknit.node.node import Node
from reknit.outcome import Code
from reknit.wire.codec import Frames, Item
from reknit.wire.links import Via
from reknit.wire.messages import Start, Subscribe, Unsubscribed, Welcome
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Survey, Surveyed
from tests.client.node_thread import ANY_PORT, serving
from tests.client.rpc.shared import DOORS, echo, run, until
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

ALLOW = (
    "ann publish plant/**",
    "ann subscribe plant/**",
    "ann as //vcu/10/1/FFFF",
    "bob subscribe plant/*/temp",
    "bob publish chat/*",
    "phone publish //vcu/10/1/FFFF",
    "phone subscribe //phone/20/1/0",
    "phone as //phone/20/1/0",
    "doors subscribe //vcu/10/1/FFFF",
    "doors publish //phone/FFFF/1/0",
    "doors as //vcu/10/1/FFFF",
    "mute subscribe //vcu/10/1/FFFF",
    "root subscribe **",
    "root publish **",
    "root admin",
)
NAMES = ("ann", "bob", "phone", "doors", "mute", "root", "relay")
MEMORY = JournalSettings(kind="memory")


@contextmanager
def guarded(folder: Path, **more: Any) -> Iterator[Node]:
    """A node with these rules; everyone's token is their name and `-token`."""
    tokens = write_tokens(folder / "tokens", {name: f"{name}-token" for name in NAMES})
    allow = (*ALLOW, *more.pop("allow", ()))
    security = SecuritySettings(tokens_file=tokens, allow=allow, audit="off")
    parts = {"node": ANY_PORT, "journal": MEMORY} | more
    with serving(Config(security=security, **parts)) as node:
        yield node


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with guarded(tmp_path) as node:
        yield node.urls[0]


def as_(who: str, url: str, name: str = "", address: str = "") -> reknit.Session:
    return reknit.connect(url, token=f"{who}-token", name=name, address=address)


async def published(url: str) -> dict[str, int]:
    """How many events there are by topic."""
    async with as_("root", url) as session:
        return {row["topic"]: row["events"] for row in (await session.status())["topics"]}


async def refusal(awaitable: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await awaitable
    return caught.value


async def refused(session: reknit.Session, topic: str, payload: bytes) -> Refused:
    """Why a session may not publish."""
    publisher = session.publisher(topic)
    error = await refusal(publisher.publish(payload))
    with suppress(Refused):
        await publisher.close()
    return error


# -- who is there


def test_without_rules_everyone_may_do_everything() -> None:
    async def program(url: str) -> None:
        async with reknit.connect(url, token="whatever") as session, session.subscribe("**") as events:
            await session.publish("a/b", b"x")
            assert (await anext(events)).payload == b"x"
            await session.status()

    with serving() as node:
        run(program(node.urls[0]))


def test_a_token_that_nobody_has_is_unauthenticated(url: str) -> None:
    async def program() -> None:
        error = await refusal(reknit.connect(url, token="guess").open())
        assert error.code == Code.UNAUTHENTICATED

    run(program())


def test_who_shows_no_token_may_do_what_everyone_may(tmp_path: Path) -> None:
    async def program(url: str) -> None:
        async with reknit.connect(url) as session:
            await session.publish("lobby", b"x")
            assert (await refused(session, "plant/1", b"x")).code == Code.PERMISSION_DENIED

    with guarded(tmp_path, allow=("* publish lobby",)) as node:
        run(program(node.urls[0]))


def test_a_token_comes_from_the_configuration_too(url: str) -> None:
    async def program() -> None:
        config = Config(security=SecuritySettings(token="ann-token"))
        async with reknit.connect(url, config=config) as session:
            await session.publish("plant/1", b"x")

    run(program())


# -- publishing


def test_a_publisher_that_may_not_is_told_and_its_event_is_counted_and_not_stored(url: str) -> None:
    async def program() -> None:
        async with as_("bob", url) as session:
            error = await refused(session, "plant/1/temp", b"99")
            assert error.code == Code.PERMISSION_DENIED
            assert "bob" in error.text
            await session.publish("chat/1", b"hello")
        async with as_("root", url) as session:
            assert (await session.status())["refused"] == {"bob": {"denied": 1}}
        assert await published(url) == {"chat/1": 1}

    run(program())


def test_a_peer_without_any_right_costs_nothing_but_a_count(url: str) -> None:
    """Its events were dead letters until their store was full, and intake stopped for everybody."""

    async def program() -> None:
        async with as_("bob", url) as bob, as_("ann", url) as ann:
            for _ in range(20):
                await refused(bob, "plant/1", bytes(100_000))
            await ann.publish("plant/1", b"real")
        async with as_("root", url) as root:
            status = await root.status()
            assert status["refused"] == {"bob": {"denied": 20}}
            assert status["journal"]["events"] == 1
            assert not status["intake"]["is_full"]

    run(program())


def test_no_subscriber_sees_what_was_refused(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url) as ann, ann.subscribe("plant/**", name="ann's") as events:
            async with as_("bob", url) as bob:
                await refused(bob, "plant/1", b"forged")
            await ann.publish("plant/1", b"real")
            assert (await anext(events)).payload == b"real"
            assert events.checkpoint is not None

    run(program())


def test_a_known_source_and_topic_are_asked_for_on_every_connection(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url, name="sensor") as ann:
            await ann.publish("plant/1", b"1")
        async with as_("bob", url, name="sensor") as bob:
            assert (await refused(bob, "plant/1", b"2")).code == Code.PERMISSION_DENIED
        async with as_("ann", url, name="sensor") as ann:
            await ann.publish("plant/1", b"3")
        assert (await published(url))["plant/1"] == 2

    run(program())


def test_nobody_publishes_under_the_source_of_another(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url, name="sensor") as ann:
            await ann.publish("plant/1", b"1")
        async with as_("root", url, name="sensor") as root:
            assert (await refused(root, "plant/1", b"2")).code == Code.UNAUTHENTICATED

    run(program())


def brought(session: reknit.Session, topic: str, source: bytes, first: int = 1) -> list[str]:
    """What comes back when a session brings an event as members of a group do: under any source."""
    told: list[str] = []
    journal = GroupJournal(session.router, topic, ask=session.ask, skip_s=1.0, window_bytes=1 << 20)
    relay = GroupSourcePublisher(journal, source)
    relay.fail = lambda error: told.append(str(error))  # type: ignore[method-assign]
    session.router.add_publisher(relay)
    relay.put(Batch.build(source, topic, first, [b"1"], time_us=0))
    return told


def test_a_group_s_topic_takes_any_new_source_but_none_of_another_topic(tmp_path: Path) -> None:
    """Members bring each other's events. Who may publish for a group speaks for its sources, and for no others."""
    allow = ("bob publish group/**", "ann publish group/robots")

    async def program(url: str) -> None:
        async with as_("ann", url, name="sensor") as ann, as_("bob", url) as bob:
            await ann.publish("plant/1", b"1")
            [source] = [one for topic, one in node.journal.ledger.published if topic == "plant/1"]
            own = brought(bob, "group/robots", source, 2)
            member = b"m" * 16
            await until(lambda: bool(own))
            assert "is not bob's" in own[0]
            fine = brought(bob, "group/robots", member)
            await until(lambda: ("group/robots", member) in node.journal.ledger.published)
            stolen = brought(ann, "plant/2", member, 2)
            await until(lambda: bool(stolen))
            assert "on another topic" in stolen[0]
            assert not fine
            again = brought(ann, "group/robots", member, 2)
            await until(lambda: node.journal.ledger.published["group/robots", member].count == 2)
            assert not again

    with guarded(tmp_path, allow=allow) as node:
        run(program(node.urls[0]))


def test_where_a_source_has_been_is_for_who_brings_it_to_say(tmp_path: Path) -> None:
    """Otherwise anybody could keep a bridge from carrying the events of another."""

    async def program(node: Node) -> None:
        url = node.urls[0]
        async with as_("ann", url, name="sensor") as ann, as_("bob", url) as bob, as_("mute", url) as mute:
            await ann.publish("plant/1", b"1")
            [source] = [one for topic, one in node.journal.ledger.published if topic == "plant/1"]
            unknown = b"u" * 16
            for session, said in ((bob, source), (mute, unknown)):
                session.connection.send(Via(said, ["elsewhere"]))
                await refusal(session.ask("status"))  # that came after it
            assert node.bridges.visited.of([source.hex(), unknown.hex()]) == [[], []]
            ann.connection.send(Via(source, ["elsewhere"]))
            await until(lambda: node.bridges.visited.of([source.hex()]) == [["elsewhere"]])

    with guarded(tmp_path) as node:
        run(program(node))


def test_a_source_stays_with_its_owner_and_topic_through_a_restart(tmp_path: Path) -> None:
    allow = ("bob publish group/**", "ann publish group/**")
    sources: list[bytes] = []

    async def first(node: Node) -> None:
        async with as_("ann", node.urls[0], name="sensor") as ann:
            await ann.publish("plant/1", b"1")
        sources.extend(one for topic, one in node.journal.ledger.published if topic == "plant/1")

    async def second(node: Node) -> None:
        [source] = sources
        async with as_("bob", node.urls[0]) as bob:
            told = brought(bob, "group/robots", source, 2)
            await until(lambda: bool(told))
            assert "is not bob's" in told[0]
            args = {"topic": "group/robots", "source": source.hex(), "start": 2, "stop": 1 << 40}
            assert (await refusal(bob.ask("skip", **args))).code == Code.PERMISSION_DENIED
        async with as_("ann", node.urls[0]) as ann:
            told = brought(ann, "group/robots", source, 2)
            await until(lambda: bool(told))
            assert "on another topic" in told[0]
        async with as_("ann", node.urls[0], name="sensor") as ann:
            await ann.publish("plant/1", b"2")
        assert node.journal.ledger.published["plant/1", source].ranges() == [(1, 3)]

    place = replace(ANY_PORT, data_dir=tmp_path / "data")
    for program in (first, second):
        with guarded(tmp_path, allow=allow, node=place, journal=JournalSettings()) as node:
            run(program(node))


def test_a_durable_name_stays_with_its_owner_through_a_restart(tmp_path: Path) -> None:
    allow = ("ann subscribe chat/*", "bob subscribe chat/*")

    async def first(node: Node) -> None:
        async with as_("bob", node.urls[0]) as bob:
            error = await refusal(bob.subscribe("plant/**", name="audit").__aenter__())
            assert error.code == Code.PERMISSION_DENIED, "and nobody owns the name by that"
        async with as_("ann", node.urls[0]) as ann, ann.subscribe("chat/*", name="audit"):
            await until(lambda: node.journal.ledger.accounts["audit"].owner == "ann")

    async def second(node: Node) -> None:
        async with as_("bob", node.urls[0]) as bob:
            error = await refusal(bob.subscribe("chat/*", name="audit").__aenter__())
            assert "is not bob's" in error.text
        async with as_("ann", node.urls[0]) as ann, ann.subscribe("chat/*", name="audit"):
            pass

    place = replace(ANY_PORT, data_dir=tmp_path / "data")
    for program in (first, second):
        with guarded(tmp_path, allow=allow, node=place, journal=JournalSettings()) as node:
            run(program(node))


def test_who_only_announces_a_source_does_not_own_it(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url, name="sensor") as ann, as_("root", url) as root:
            publisher = ann.publisher("plant/1")
            await refused(ann, "nowhere", b"x")
            assert await root.ask("owners") == {"sources": [], "subscribers": []}
            await publisher.publish(b"1")
            [row] = (await root.ask("owners"))["sources"]
            assert (row["topic"], row["owner"]) == ("plant/1", "ann")

    run(program())


def test_an_admin_gives_a_source_and_a_name_to_somebody_else(tmp_path: Path) -> None:
    allow = ("bob publish plant/**", "bob subscribe plant/**", "ann subscribe plant/**")

    async def program(node: Node) -> None:
        url = node.urls[0]
        async with as_("ann", url, name="sensor") as ann, ann.subscribe("plant/**", name="audit"):
            await ann.publish("plant/1", b"1")
        async with as_("bob", url, name="sensor") as bob:
            await refused(bob, "plant/1", b"2")
            error = await refusal(bob.ask("own", subscriber="audit", owner="bob"))
            assert error.code == Code.PERMISSION_DENIED
        async with as_("root", url) as root:
            [row] = (await root.ask("owners"))["sources"]
            await root.ask("own", source=row["source"], owner="bob")
            await root.ask("own", subscriber="audit", owner="bob")
            for what in ({"subscriber": "nobody"}, {"source": "xyz"}, {"source": "00" * 16}):
                assert (await refusal(root.ask("own", **what, owner="bob"))).code == Code.INVALID_ARGUMENT
        async with as_("bob", url, name="sensor") as bob, bob.subscribe("plant/**", name="audit") as events:
            await bob.publish("plant/1", b"2")
            assert [(await anext(events)).payload for _ in range(2)] == [b"1", b"2"]
        async with as_("ann", url, name="sensor") as ann:
            await refused(ann, "plant/1", b"3")

    with guarded(tmp_path, allow=allow) as node:
        run(program(node))


def test_an_identity_that_does_not_match_the_source_is_unauthenticated(url: str) -> None:
    ids = IdMaker()

    async def program() -> None:
        own, other = Address.parse("//vcu/10/1/8001"), Address.parse("//mcu/10/1/8001")
        async with as_("root", url) as root:
            error = await refusal(
                root.publish_event(Attributes(id=ids(), type=Kind.PUBLISH, source=other), b"forged")
            )
            assert error.code == Code.UNAUTHENTICATED
            assert (await root.status())["refused"] == {"root": {"unauthenticated": 1}}
        assert own.topic not in await published(url)
        assert other.topic not in await published(url)

    run(program())


# -- requests


def test_a_permitted_request_is_answered(url: str) -> None:
    async def program() -> None:
        async with (
            as_("doors", url) as doors,
            as_("phone", url, address="//phone/20/1/0") as phone,
            doors.serve(DOORS, echo),
        ):
            assert (await phone.request(DOORS, b"open")).payload == b"echo open"

    run(program())


def test_a_service_that_may_not_respond_is_internal(url: str) -> None:
    async def program() -> None:
        async with (
            as_("mute", url) as mute,
            as_("phone", url, address="//phone/20/1/0") as phone,
            mute.serve(DOORS, echo),
        ):
            with pytest.raises(RequestFailed) as caught:
                await phone.request(DOORS, b"open", ttl_ms=20_000)
            assert caught.value.code == Code.INTERNAL

    run(program())


def test_a_request_that_is_not_permitted_is_permission_denied(url: str) -> None:
    """The requester is told on its connection, and by a response at its address."""

    async def program() -> None:
        async with as_("phone", url, address="//phone/20/1/0") as phone:
            with pytest.raises(RequestFailed) as caught:
                await phone.request("//mcu/10/1/7", b"open", ttl_ms=20_000)
            assert caught.value.code == Code.PERMISSION_DENIED
            async with phone.subscribe(phone.address.topic, history=True) as events:
                response = (await anext(events)).attributes
            assert response is not None
            assert (response.commstatus, response.sink) == (Code.PERMISSION_DENIED, phone.address)
            assert response.source == Address.parse("//mcu/10/1/7")

    run(program())


def test_a_request_in_the_name_of_another_is_answered_only_where_it_came_from(url: str) -> None:
    async def program() -> None:
        victim = Address.parse("//victim/20/1/0")
        async with as_("root", url) as root, root.subscribe("up/**") as events:
            async with as_("phone", url, address="//phone/20/1/0") as phone:
                made = Attributes(
                    id=IdMaker()(),
                    type=Kind.REQUEST,
                    source=victim,
                    sink=DOORS,
                    priority=Priority.CS4,
                    ttl_ms=20_000,
                )
                error = await refusal(phone.publish_event(made, b"open"))
                assert error.code == Code.UNAUTHENTICATED
            assert (await root.status())["refused"] == {"phone": {"unauthenticated": 1}}
            await root.publish("up/marker", b"end")
            assert (await anext(events)).payload == b"end"

    run(program())


# -- subscribing, and the past


def test_a_subscription_that_is_not_permitted_is_refused(url: str) -> None:
    async def program() -> None:
        async with as_("bob", url) as bob:
            ways: list[dict[str, Any]] = [
                {},
                {"name": "bob's"},
                {"history": True},
                {"start": reknit.Checkpoint()},
            ]
            for settings in ways:
                for pattern in ("plant/**", "plant/1/door", "**", "plant/*/*"):
                    error = await refusal(bob.subscribe(pattern, **settings).__aenter__())
                    assert error.code == Code.PERMISSION_DENIED
            async with bob.subscribe("plant/*/temp"), bob.subscribe("plant/1/temp"):
                pass
        async with as_("root", url) as root:
            assert [row["name"] for row in (await root.status())["subscribers"] if row["name"]] == []

    run(program())


def test_nobody_takes_over_the_durable_subscription_of_another(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url) as ann, ann.subscribe("plant/1/temp", name="audit") as events:
            async with as_("bob", url) as bob:
                error = await refusal(bob.subscribe("plant/1/temp", name="audit").__aenter__())
                assert (error.code, "audit" in error.text) == (Code.PERMISSION_DENIED, True)
            await ann.publish("plant/1/temp", b"x")
            assert (await anext(events)).payload == b"x"

    run(program())


class Wire:
    """A client that says what it likes, and keeps what it is told."""

    def __init__(self, url: str, name: str) -> None:
        self.link = NodeConnection(url, name, self, Config(), f"{name}-token")
        self.heard: list[Item] = []

    def connected(self, welcome: Welcome) -> None:
        """Nothing to do."""

    def disconnected(self) -> None:
        """Nothing to do."""

    def received(self, items: list[Item]) -> None:
        self.heard += items

    def has(self, kind: type[Any], count: int) -> bool:
        return len(self.of(kind)) == count

    def of(self, kind: type[Any]) -> list[Any]:
        return [item for item in self.heard if isinstance(item, kind)]


def test_recovery_and_surveys_of_what_may_not_be_read_give_nothing(url: str) -> None:
    async def program() -> None:
        async with as_("ann", url) as ann:
            publisher = ann.publisher("plant/1/door")
            await publisher.publish(b"secret")
            await ann.publish("plant/1/temp", b"21")
            for name, count in (("bob", 0), ("ann", 1)):
                wire = Wire(url, name)
                await wire.link.open(5.0)
                wire.link.send(
                    Recover(1, "plant/1/door", publisher.source, [(1, 2)], 1 << 20, deep=False),
                    Survey(2, "plant/**", deep=False),
                    Survey(3, "plant/1/temp", deep=False),
                )
                await until(partial(wire.has, Surveyed, 2))
                assert len(wire.of(Frames)) == count
                assert [answer.size > 0 for answer in wire.of(Recovered)][:1] == [count > 0]
                spans = {answer.id: len(answer.spans) for answer in wire.of(Surveyed)}
                assert spans == {2: 2 * count, 3: 1}
                await wire.link.close()

    run(program())


@pytest.mark.parametrize(
    ("what", "args", "bob", "ann"),
    [
        ("find", {"topic": "plant/1/door", "source": b"s" * 16, "start": 1, "stop": 2}, False, True),
        ("find", {"topic": "plant/1/temp", "source": b"s" * 16, "start": 1, "stop": 2}, True, True),
        ("find", {}, False, False),
        ("checkpoint", {"pattern": "plant/**"}, False, True),
        ("align", {"pattern": "plant/**", "level": "digest"}, False, True),
        ("read", {"position": 0}, False, False),
        ("records", {"position": 0}, False, False),
        ("status", {}, False, False),
        ("ledger", {}, False, False),
        ("topics", {}, False, False),
        ("summary", {}, False, False),
        ("ledger_page", {}, False, False),
        ("topics_page", {}, False, False),
        ("subscribers_page", {}, False, False),
        ("losses", {}, False, False),
        ("fate", {"topic": "plant/1/door", "source": "00", "seq": 1}, False, True),
        ("streams", {}, False, False),
        ("config", {}, False, False),
        ("no such question", {}, False, False),
    ],
)
def test_questions_are_answered_to_who_may_know(
    url: str, what: str, args: dict[str, Any], bob: bool, ann: bool
) -> None:
    async def program() -> None:
        for name, may in (("bob", bob), ("ann", ann), ("root", True)):
            async with as_(name, url) as session:
                try:
                    await session.ask(what, **args)
                    code = Code.OK
                except Refused as error:
                    code = Code(error.code)
                assert (code is not Code.PERMISSION_DENIED) == may, name

    run(program())


def test_who_may_not_publish_can_neither_offer_events_nor_tell_of_some(url: str) -> None:
    async def program() -> None:
        source = b"s" * 16
        async with as_("ann", url) as ann, ann.subscribe("plant/1/temp") as events:
            wire = Wire(url, "bob")
            await wire.link.open(5.0)
            wire.link.send(
                Offer("plant/**"), Heartbeat("plant/1/temp", source, 99), Survey(1, "plant/1/temp")
            )
            await until(lambda: bool(wire.of(Surveyed)))
            await ann.publish("plant/1/temp", b"1")
            assert (await anext(events)).payload == b"1"
            assert wire.of(Recover) == []
            await wire.link.close()

    run(program())


def test_a_pattern_that_is_none_is_refused_for_what_it_is(url: str) -> None:
    async def program() -> None:
        wire = Wire(url, "bob")
        await wire.link.open(5.0)
        wire.link.send(Subscribe(1, "plant//x", "", Start(), 1 << 20))
        await until(lambda: bool(wire.of(Unsubscribed)))
        assert wire.of(Unsubscribed)[0].code == Code.INVALID_ARGUMENT
        await wire.link.close()

    run(program())


# -- nodes, and certificates


def test_a_relay_shows_its_nodes_token_and_feeds_its_own_node(tmp_path: Path) -> None:
    async def program(origin: str, near: str) -> None:
        async with (
            as_("ann", origin) as ann,
            as_("root", near) as root,
            root.subscribe("plant/**", history=True) as events,
        ):
            await ann.publish("plant/1", b"x")
            assert (await anext(events)).payload == b"x"

    with guarded(tmp_path, allow=("relay subscribe **",)) as origin:
        relays = RecoverySettings(relays=(origin.urls[0],))
        security = SecuritySettings(
            token="relay-token", tokens_file=str(tmp_path / "tokens"), allow=("root subscribe **",)
        )
        config = Config(
            node=NodeSettings(name="near", listen=("tcp://127.0.0.1:0",)),
            journal=MEMORY,
            recovery=relays,
            security=security,
        )
        with serving(config) as near:
            run(program(origin.urls[0], near.urls[0]))


def openssl(folder: Path, *args: str) -> None:
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=150)


def certificates(folder: Path, *names: str) -> None:
    """A certificate for each name, signed by one authority."""
    subject = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", "-x509", *subject, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in names:
        openssl(
            folder, "req", *subject, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
        )
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


def test_a_certificate_says_who_a_peer_is(tmp_path: Path) -> None:
    certificates(tmp_path, "node", "ann")
    transport = TransportSettings(
        tls_cert_file=str(tmp_path / "node.pem"),
        tls_key_file=str(tmp_path / "node.key"),
        tls_ca_file=str(tmp_path / "ca.pem"),
    )
    config = Config(
        node=NodeSettings(name="test", listen=("tls://127.0.0.1:0",)),
        journal=MEMORY,
        transport=transport,
        security=SecuritySettings(allow=("ann publish plant/**",)),
    )

    async def program(url: str) -> None:
        nobody = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        ann = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        ann.load_cert_chain(tmp_path / "ann.pem", tmp_path / "ann.key")
        async with reknit.connect(url, tls=ann) as session:
            await session.publish("plant/1", b"x")
        async with reknit.connect(url, tls=nobody) as session:
            assert (await refused(session, "plant/1", b"x")).code == Code.PERMISSION_DENIED

    with serving(config) as node:
        run(program(node.urls[0]))
