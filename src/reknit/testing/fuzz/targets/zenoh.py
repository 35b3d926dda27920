"""Zenoh: samples, heartbeats, tokens and queries that are odd, and events with odd columns on their way to Zenoh."""

from __future__ import annotations

import asyncio
from functools import cached_property
from random import Random
from typing import Any, Final

from reknit.client.session import Session
from reknit.gateway.zenoh.threads import call
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import NUMBERS, mutate_text
from reknit.testing.fuzz.node import FuzzedNode
from reknit.testing.fuzz.peers import Conversations
from reknit.testing.fuzz.targets.target import PortTarget
from reknit.testing.fuzz.targets.tcp import TcpTarget
from reknit.testing.fuzz.zenoh_peers import ASK, DELETE, PUT, TOKEN, Call, ZenohPeers

KEYS: Final = ("evil/x", "evil/y", "evil/x/y", "plant/a", "evil/z/kn_routes")
PATTERNS: Final = ("evil/*", "evil/**", "**", "plant/a", "evil/x", "@reknit/**")
ZIDS: Final = ("c0ffee", "*", "1", "20000000000000000000000000000001", "f" * 40, "g")
EIDS: Final = ("1", "7", "*", "9" * 20, "9" * 5_000, "-1", "²")
RESTS: Final = ("_", "reknit-65646765", "reknit-ff", "reknit-", "a/b/c", "x" * 300)
NUMBER_TEXTS: Final = ("0", "3", "-1", "9" * 9, "9" * 30, "9" * 5_000, "", "x", "1.5")
AGES: Final = (
    "now(-5s)",
    "[now(-5s)..]",
    "[now(-1.2.3s)..]",
    f"[now(-{'9' * 400}d)..]",
    "[now(-ms)..]",
    "[..]",
    "now(",
)
ENCODINGS: Final = ("text/plain", "application/json;charset=x", "zenoh/bytes", "x", "é" * 10, "e" * 250)
"""Zenoh's own library panics at longer ones, before it sends them."""
ATTACHMENT_BYTES: Final = (0, 1, 30, 70_000, 400_000)
SECONDS: Final = (0, 1, 1_700_000_000, 4_000_000_000, (1 << 32) - 1)
"""What Zenoh has bits for, up to 2106."""
SERVED_S: Final = 60.0
"""How long the gateway may take to show that it still works."""


class ZenohTarget(PortTarget):
    """Peers of a Zenoh network that say what no publisher or subscriber of Zenoh says."""

    name = port = "zenoh"

    @cached_property
    def frames(self) -> TcpTarget:
        return TcpTarget()

    def make(self, rng: Random) -> tuple[Step, ...]:
        if rng.random() < 0.15:  # what comes from clients of the node goes on to Zenoh
            return self.frames.make(rng)
        return tuple(_step(rng) for _ in range(rng.choice((1, 2, 3, 8))))

    def peers(self, node: FuzzedNode) -> Conversations:
        return ZenohPeers(node.ports["zenoh"], node.ports["tcp"])

    async def check(self, node: FuzzedNode) -> str:
        """A sample comes, and an event goes, whatever was said before."""
        peers = ZenohPeers(node.ports["zenoh"], node.ports["tcp"])
        try:
            async with asyncio.timeout(SERVED_S), Session(node.url, "") as session:
                await _comes(peers, session)
                await _goes(peers, session)
        except TimeoutError:
            return f"the Zenoh gateway does nothing any more\nafter {SERVED_S:.0f} s"
        finally:
            peers.close()
        return ""


async def _comes(peers: ZenohPeers, session: Session) -> None:
    async with session.subscribe("canary/there") as events:
        arrival = asyncio.ensure_future(anext(events))
        try:
            while not arrival.done():
                await call(peers.take, Step(PUT, Call("canary/there", b"0").packed()))
                await asyncio.wait([arrival], timeout=0.1)
        finally:
            arrival.cancel()


async def _goes(peers: ZenohPeers, session: Session) -> None:
    seen = await call(peers.watch, "canary/back")
    while not seen:
        await session.publish("canary/back", b"0")
        await asyncio.sleep(0.1)


def _step(rng: Random) -> Step:
    match rng.randrange(10):
        case 0 | 1:
            return Step(ASK, Call(_selector(rng)).packed())
        case 2:
            return Step(TOKEN, Call(_entity(rng)).packed())
        case 3 | 4:  # a heartbeat
            return Step(PUT, Call(_entity(rng), _number(rng)).packed())
        case 5:
            return Step(DELETE, Call(_key(rng), options=_options(rng)).packed())
        case _:
            payload = rng.randbytes(rng.choice((0, 1, 30, 2_000)))
            return Step(PUT, Call(_key(rng), payload, _options(rng)).packed())


def _key(rng: Random) -> str:
    key = rng.choice(KEYS)
    return mutate_text(rng, key) if rng.random() < 0.2 else key


def _entity(rng: Random) -> str:
    """The key of a publisher's token or heartbeat."""
    if rng.random() < 0.1:
        return rng.choice(
            ("@reknit/gateway/65646765", "@reknit/gateway/ff", "@reknit/gateway/", "evil/x/@adv/pub")
        )
    kind = rng.choice(("pub", "pub", "pub", "sub", "*"))
    found = f"{rng.choice(KEYS)}/@adv/{kind}/{rng.choice(ZIDS)}/{rng.choice(EIDS)}/{rng.choice(RESTS)}"
    return mutate_text(rng, found) if rng.random() < 0.1 else found


def _number(rng: Random) -> bytes:
    number = rng.choice(NUMBERS) & 0xFFFFFFFF
    return rng.choice((number.to_bytes(4, "little"), rng.randbytes(rng.randrange(9)), b""))


def _selector(rng: Random) -> str:
    pattern = rng.choice(PATTERNS)
    if rng.random() < 0.6:
        pattern += rng.choice(("/@adv/**", f"/@adv/*/{rng.choice(ZIDS)}/1/**", "/@adv/pub/*/*/**"))
    start, stop = rng.choice(NUMBER_TEXTS), rng.choice(NUMBER_TEXTS)
    known = (
        "_anyke",
        f"_sn={start}..{stop}",
        f"_sn={start}",
        f"_max={rng.choice(NUMBER_TEXTS)}",
        f"_time={rng.choice(AGES)}",
        "=;=;",
    )
    parameters = ";".join(rng.sample(known, rng.randint(0, 4)))
    return f"{pattern}?{mutate_text(rng, parameters) if rng.random() < 0.2 else parameters}"


def _options(rng: Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["encoding"] = rng.choice(ENCODINGS)
    if rng.random() < 0.4:
        options["attachment"] = _attachment(rng)
    if rng.random() < 0.3:
        options["timestamp"] = [
            rng.choice(SECONDS),
            rng.randrange(10**9),
            rng.randbytes(rng.choice((1, 8, 16))),
        ]
    if rng.random() < 0.3:
        options["priority"] = rng.randrange(1, 8)
    if rng.random() < 0.5:
        options["source"] = [rng.randrange(1, 5), rng.choice(NUMBERS) & 0xFFFFFFFF]
    return options


def _attachment(rng: Random) -> bytes:
    """A map of text as Zenoh writes it, or other bytes."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.choice(ATTACHMENT_BYTES))
    texts = [mutate_text(rng, "reknit-source").encode("utf-8", "surrogatepass")[:100] for _ in range(4)]
    packed = b"".join(bytes((len(text),)) + text for text in texts)
    return bytes((rng.choice((2, 2, 2, 0, 0xFF)),)) + packed
