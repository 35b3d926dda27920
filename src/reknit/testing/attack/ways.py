"""Attacks that no single request shows: taking over what is another's, speaking as a node, filling what all share.

Each is a function with the promise that it would break. It returns what it found, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode

from reknit import environment
from reknit.batch import Batch
from reknit.testing.attack.credentials import ANN, BOB, FOREIGN, ROOT
from reknit.testing.attack.http_client import request
from reknit.testing.attack.raw_peer import Closed, raw_peer
from reknit.testing.attack.target import SECRET, SECRET_TOPIC, Target
from reknit.testing.load.probe import memory_bytes
from reknit.wire.links import Announce, Link, LinkState
from reknit.wire.messages import Ack, Message, Ping, Pong, Refuse, Start, Subscribe, Subscribed, Unsubscribed
from reknit.wire.recovery import Recover, Recovered

SOURCE: Final = b"ann's own source"
NAME: Final = "ann's subscriber"
FLOOD: Final = 300
GROWTH_BYTES_MAX: Final = 96 << 20

Find = Callable[[Target], Awaitable[str]]
F = TypeVar("F", bound=Find)


class Way(NamedTuple):
    """An attack."""

    name: str
    promise: str
    find: Find


WAYS: list[Way] = []


def way(promise: str) -> Callable[[F], F]:
    """Declare an attack by the promise that it would break."""

    def declare(find: F) -> F:
        WAYS.append(Way(getattr(find, "__name__", ""), promise, find))
        return find

    return declare


def event(source: bytes, topic: str, seq: int, payload: bytes = b"x") -> Batch:
    """One event."""
    return Batch.build(source, topic, seq, [payload], environment.time_us())


def durable(pattern: str, name: str) -> Subscribe:
    """The message that opens a durable subscription."""
    return Subscribe(1, pattern, name, Start(), 1 << 20)


async def take_over(
    target: Target,
    ann_says: Message | Batch,
    she_hears: type[Message],
    bob_says: Message | Batch,
    he_may_hear: type[Message],
) -> str:
    """Ann takes something, and then bob tries to: at once, and after a restart of the node."""
    async with raw_peer(target.ports["tcp"], target.secrets[ANN]) as ann:
        await ann.say(ann_says)
        await ann.hear(she_hears)
    for when in ("at once", "after a restart"):
        if when != "at once":
            await target.restart()
        async with raw_peer(target.ports["tcp"], target.secrets[BOB]) as bob:
            await bob.say(bob_says)
            if isinstance(await bob.hear(she_hears, he_may_hear), she_hears):
                return f"{when} bob has what is ann's"
    return ""


@way("A source belongs to the identity whose events came first, also after a restart.")
async def take_over_a_source(target: Target) -> str:
    ours, theirs = event(SOURCE, "plant/own", 1), event(SOURCE, "other/own", 2)
    return await take_over(target, ours, Ack, theirs, Refuse)


@way("A durable subscription belongs to the identity that opened it, also after a restart.")
async def take_over_a_subscription(target: Target) -> str:
    ours, theirs = durable("plant/**", NAME), durable("other/**", NAME)
    return await take_over(target, ours, Subscribed, theirs, Unsubscribed)


@way("A subscription that is refused claims no name.")
async def claim_a_name(target: Target) -> str:
    async with raw_peer(target.ports["tcp"], target.secrets[BOB]) as bob:
        await bob.say(durable("plant/**", "free"))
        await bob.hear(Unsubscribed)
    async with raw_peer(target.ports["tcp"], target.secrets[ANN]) as ann:
        await ann.say(durable("plant/**", "free"))
        answer = await ann.hear(Subscribed, Unsubscribed)
        return f"bob keeps ann from a free name: {answer}" if isinstance(answer, Unsubscribed) else ""


@way("Nothing of a topic that somebody may not read comes out of a cache or a search.")
async def recover_a_secret(target: Target) -> str:
    rows = (await target.root.ask("owners"))["sources"]
    sources = [bytes.fromhex(row["source"]) for row in rows if row["topic"] == SECRET_TOPIC]
    for name in (BOB, ""):
        async with raw_peer(target.ports["tcp"], target.secrets.get(name, "")) as thief:
            for source in sources:
                await thief.say(Recover(1, SECRET_TOPIC, source, [(1, 1000)], 1 << 20))
                answer = await thief.hear(Recovered)
                if answer.size:
                    return f"{name or 'anonymous'} recovered {answer.size} bytes of ann's"
    return "" if sources else "ann's source is not among the owners"


@way("Only nodes with the right to be linked speak as nodes.")
async def speak_as_a_node(target: Target) -> str:
    claims = (
        Link("mallory", 1, 1, False, [], "journal"),
        LinkState("mallory", 1, 1, {"node": 1}),
        Announce("mallory", 1, 1, [("**", "journal")], is_whole=True),
    )
    for role in ("client", "node"):
        for claim in claims:
            async with raw_peer(target.ports["tcp"], target.secrets[BOB], role) as bob:
                await bob.say(claim, Ping())
                try:
                    await bob.hear(Pong)
                except Closed:
                    continue
                if await target.root.ask("links"):
                    return f"bob, as a {role}, linked a node with {type(claim).__name__}"
                return f"bob, as a {role}, was heard after {type(claim).__name__}"
    return ""


@way("Who may publish nothing fills nothing: their events are not stored, and others publish as before.")
async def fill_the_journal(target: Target) -> str:
    before = await target.figures()
    async with raw_peer(target.ports["tcp"]) as stranger:
        for number in range(FLOOD):
            source = number.to_bytes(16, "big")
            await stranger.say(event(source, "plant/full", 1, b"x" * 10_000))
        for _ in range(FLOOD):
            await stranger.hear(Refuse)
    after = await target.figures()
    if after["dead_letters"] != before["dead_letters"]:
        return f"refused events became dead letters: {after['dead_letters']}"
    grown = after["journal"]["bytes"] - before["journal"]["bytes"]
    if grown > FLOOD * 1_000:
        return f"{FLOOD} refused events of 10,000 bytes made the journal grow by {grown:,} bytes"
    await target.say_secret()
    return ""


@way("A peer that does not read costs no more than its share of memory.")
async def fill_the_memory(target: Target) -> str:
    rows = (await target.root.ask("owners"))["sources"]
    [source] = [bytes.fromhex(row["source"]) for row in rows if row["topic"] == SECRET_TOPIC][:1]
    await target.ann.publish_many(SECRET_TOPIC, [SECRET * 70] * 4_000)
    before = memory_bytes(target.process.pid)
    async with raw_peer(target.ports["tcp"], target.secrets[ANN]) as greedy:
        wish = Recover(1, SECRET_TOPIC, source, [(1, 5_000)], 4 << 20)
        with suppress(ConnectionError):  # it may be closed for it
            await greedy.say(*[wish] * FLOOD)
        await target.say_secret()
        grown = memory_bytes(target.process.pid) - before
    return f"the node's memory grew by {grown >> 20} MiB" if grown > GROWTH_BYTES_MAX else ""


@way("Before it introduced itself a peer is given room for a greeting, not more.")
async def send_much_before_a_greeting(target: Target) -> str:
    async with raw_peer(target.ports["tcp"], greets=False) as rude:
        try:
            await rude.say(event(SOURCE, "plant/rude", 1, b"x" * 100_000))
            await rude.hear(Ack)
        except (Closed, ConnectionError):
            return ""
    return "a peer without a greeting was heard"


@way("A page of another site that gives its own name the address of this machine reaches nothing.")
async def rebind_a_name(target: Target) -> str:
    for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
        headers = {"Host": name, "Authorization": f"Bearer {target.secrets[ROOT]}"}
        for door, path in (("http", "/sse?topic=plant/**"), ("http", "/kn?do_method=whoami")):
            answer = await request(target.ports[door], "GET", path, headers)
            if answer.status != 403:
                return f"{path} for the name {name} was answered with {answer.words}"
    return ""


@way("Topics below reknit/ are written by nodes alone.")
async def forge_the_nodes_own_events(target: Target) -> str:
    async with raw_peer(target.ports["tcp"], target.secrets[ROOT]) as root:
        await root.say(event(b"a forger's source"[:16], "reknit/audit", 1, b"{}"))
        if isinstance(await root.hear(Ack, Refuse), Ack):
            return "an admin wrote on reknit/audit"
    return ""


@way("A token in a URL, which logs and proxies see, opens nothing.")
async def put_a_token_into_a_url(target: Target) -> str:
    for path in ("/sse?topic=plant/**", "/kn?kn_from=/plant/secret"):
        answer = await request(target.ports["http"], "GET", f"{path}&token={target.secrets[ROOT]}", {})
        if answer.status < 400:
            return f"{path} with a token in it was answered with {answer.words}"
    return ""


@way("A ticket opens one stream, publishes nothing, and is given only to who proves an identity.")
async def use_a_ticket_twice(target: Target) -> str:
    port, right = target.ports["http"], {"Authorization": f"Bearer {target.secrets[ANN]}"}
    for headers in ({}, {"Authorization": "Bearer reknit_wrong"}, {**right, "Origin": FOREIGN}):
        answer = await request(port, "POST", "/ticket", headers)
        if answer.status < 400:
            return f"a ticket was given to {sorted(headers)}: {answer.words}"
    ticket = json.loads((await request(port, "POST", "/ticket", right)).body)["ticket"]
    form = urlencode({"kn_to": "/plant/ticket", "kn_payload": "x"}).encode()
    await request(port, "POST", f"/kn?ticket={ticket}", {}, form)
    if await target.has_topic("plant/ticket"):
        return "a ticket published an event"
    ticket = json.loads((await request(port, "POST", "/ticket", right)).body)["ticket"]
    answers = [await request(port, "GET", f"/sse?topic=plant/**&ticket={ticket}", {}) for _ in range(2)]
    if [answer.status for answer in answers] != [200, 403]:
        return f"a ticket was used twice: {[answer.words for answer in answers]}"
    return ""


@way("A token that was revoked ends the connections that were opened with it.")
async def stay_after_a_revocation(target: Target) -> str:
    async with raw_peer(target.ports["tcp"], target.secrets[BOB]) as bob:
        await bob.say(Ping())
        await bob.hear(Pong)
        target.revoke(BOB)
        try:
            await bob.hear(Closed, patience_s=10.0)
        except Closed:
            return ""
        except TimeoutError:
            return "bob stayed connected with a token that was revoked"
    return ""
