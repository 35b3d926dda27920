"""Programs that use the calls of the client that other programs do not use, and know what each has to give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from reknit.client.recovery.caches import Cache
from reknit.config import LimitSettings
from reknit.errors import Closed, Full, InvalidAttributes, InvalidTopic, LocalError, Refused, RequestFailed
from reknit.outcome import Code
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import CLIENT, EXPECTED, Program, Scene, is_peaceful
from reknit.testing.fabric.record import Sent

LIMITS: Final = LimitSettings(batch_bytes=200, publish_window_bytes=1_000, payload_bytes_max=500)
ACT_S: Final = 30.0
"""How long an act may take."""
CALLS_MAX: Final = 100
TTL_MS: Final = 3_000
CODES: Final = {"refuse": Code.NOT_FOUND, "sleep": Code.DEADLINE_EXCEEDED, "odd": Code.UNKNOWN}
"""What a request with this text fails with."""
REPLIES: Final = {"text": b"a text", "bytes": b"bytes", "nothing": b""}
"""What a request with this text is answered with."""


def calling_programs(scene: Scene) -> list[Program]:
    """The callers of a plan."""
    rng, nodes = scene.fabric.rng("callers"), list(scene.fabric.nodes.values())
    return [CallingProgram(scene, f"caller{at}", rng.choice(nodes), at) for at in range(scene.plan.callers)]


class CallingProgram(Program):
    """Does one thing after the other, each on a topic of its own. An act gives what was wrong; nothing is good.

    An act that a fault interrupts is not judged. Without faults nothing may interrupt one.
    """

    def __init__(self, scene: Scene, name: str, node: FabricNode, number: int) -> None:
        super().__init__(scene, name, node)
        self._number, self._count = number, 0

    async def live(self) -> None:
        acts: list[Callable[[Any], Awaitable[str]]] = [
            self._send,
            self._fill_the_window,
            self._read_history,
            self._resume_at_a_checkpoint,
            self._store_in_two_caches,
            self._ask_and_answer,
            self._change_routes,
            self._make_mistakes,
        ]
        while not self.scene.is_calm:
            lives, found = self.node.starts, ""
            act = self.rng.choice(acts)
            try:
                async with asyncio.timeout(ACT_S), self._connect() as session:
                    found = await act(session)
            except EXPECTED as error:
                found = f"{act.__name__} ended with {error!r}" if is_peaceful(self.scene.plan) else ""
            if found and self.node.starts == lives and self.node.is_up:
                self.scene.record.blame(f"{self.name}: {found}")
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.put_rate))

    def _connect(self) -> Any:
        config = replace(CLIENT, limits=LIMITS)
        return self.scene.fabric.session(self.node.url, config=config, wait_s=5.0)

    # -- publishing and reading

    def _topic(self) -> str:
        """A topic that nobody else uses."""
        self._count += 1
        return f"call/{self.name}/{self._count}"

    def _put(self, topic: str) -> Sent:
        self._count += 1
        text = f"{self.name} {self._count} ".encode() + b"." * self.rng.randrange(60)
        return self.scene.record.put(text, topic, self.name)

    async def _publish(self, session: Any, count: int) -> tuple[str, list[Sent]]:
        """A topic with some events, which are stored."""
        topic = self._topic()
        several = [self._put(topic) for _ in range(count)]
        await session.publish_many(topic, [sent.payload for sent in several])
        self._stored(several)
        return topic, several

    def _stored(self, several: list[Sent]) -> None:
        for sent in several:
            self.scene.record.stored(sent)

    async def _differs(self, session: Any, topic: str, expected: list[Sent], **options: Any) -> str:
        """What a subscription brings instead of these events; empty if it brings these, in this order."""
        async with session.subscribe(topic, **options) as events:
            found = await self._take(events, len(expected))
        payloads = [sent.payload for sent in expected]
        return "" if found == payloads else f"{topic} with {options} brought {found}, and not {payloads}"

    async def _take(self, events: Any, count: int) -> list[bytes]:
        """The next events, taken in one of the ways that there are."""
        found: list[bytes] = []
        match self.rng.choice(("one by one", "batches", "all that came")):
            case "one by one":
                while len(found) < count:
                    found.append(bytes((await anext(events)).payload))
            case "batches":
                async for batch in events.batches():
                    found += map(bytes, batch.payloads())
                    if len(found) >= count:
                        break
            case _:
                while len(found) < count:
                    for batch in await events.take_all(wait_s=self.rng.choice((None, 5.0))):
                        found += map(bytes, batch.payloads())
        return found

    # -- acts

    async def _send(self, session: Any) -> str:
        """Everything that is sent is stored when `flush` returns, however small the window is."""
        topic = self._topic()
        several = [self._put(topic) for _ in range(self.rng.randint(1, CALLS_MAX))]
        async with session.publisher(topic, heartbeat_s=0.2, is_heartbeat_periodic=True) as publisher:
            for sent in several:
                await publisher.send(sent.payload)
            await publisher.flush()
            if publisher.unkept:
                return f"{publisher.unkept} events on {topic} were not stored when flush returned"
        self._stored(several)
        return await self._differs(session, topic, several, history=True)

    async def _fill_the_window(self, session: Any) -> str:
        """A publisher that does not wait raises `Full` in time; what it took before is stored."""
        topic, taken, stored = self._topic(), list[Sent](), list[Any]()
        publisher = session.publisher(topic, wait=False)
        try:
            while len(taken) < CALLS_MAX:
                sent = self._put(topic)
                stored.append(publisher.publish(sent.payload))
                taken.append(sent)
        except Full:
            pass
        else:
            return f"{CALLS_MAX} events were taken at once, and the window has {LIMITS.publish_window_bytes} bytes"
        await asyncio.gather(*stored)
        self._stored(taken)
        return await self._differs(session, topic, taken, history=True)

    async def _read_history(self, session: Any) -> str:
        """History is all that is held, the last events, or the events of the last seconds."""
        topic, several = await self._publish(session, self.rng.randint(1, 6))
        count = self.rng.randint(1, 4)
        found = await self._differs(session, topic, several[-count:], history=count)
        return found or await self._differs(session, topic, several, history=3600.0)

    async def _resume_at_a_checkpoint(self, session: Any) -> str:
        """A subscription that starts at a checkpoint brings the event in hand then, and those after it."""
        topic, several = await self._publish(session, self.rng.randint(2, 6))
        async with session.subscribe(topic, history=True) as events:
            for _ in range(self.rng.randint(1, len(several) - 1)):
                last = bytes((await anext(events)).payload)
            place = events.checkpoint
        in_hand = [sent.payload for sent in several].index(last)
        return await self._differs(session, topic, several[in_hand:], start=place)

    async def _store_in_two_caches(self, session: Any) -> str:
        """An event that two caches have to store is in both when its publisher is told."""
        topic = self._topic()
        async with self._connect() as other, Cache(other, topic) as cache:
            publisher = session.publisher(topic, stored_by=2, heartbeat_s=0.3)
            several = [self._put(topic) for _ in range(self.rng.randint(1, 3))]
            await publisher.publish_many([sent.payload for sent in several])
            self._stored(several)
            held = cache.held.find(topic, publisher.source, 1, publisher.next_seq, 1 << 20)
        found = [bytes(payload) for batch in held for payload in batch.payloads()]
        is_held = found == [sent.payload for sent in several]
        return "" if is_held else f"{len(several)} events are stored by two caches, and one has {found}"

    async def _ask_and_answer(self, session: Any) -> str:
        """The result of a handler is the reply; what it raises is the failure."""
        self._count += 1
        address = f"//call{self._number}/{0x1000 + self._count:X}/1/1"
        async with self._connect() as other, other.serve(address, self._handle):
            for text in (*CODES, *REPLIES):
                try:
                    reply = (await session.request(address, text, ttl_ms=TTL_MS)).payload
                except RequestFailed as error:
                    reply = b"failed with %d" % error.code
                expected = REPLIES.get(text, b"failed with %d" % CODES.get(text, 0))
                if reply != expected:
                    return f"a request to {text} got {reply!r}, and not {expected!r}"
        return ""

    async def _handle(self, request: Any) -> bytes | str | None:
        match request.payload:
            case b"refuse":
                raise Refused(Code.NOT_FOUND, "there is no such thing")
            case b"odd":
                raise Refused(99, "there is no such code")
            case b"sleep":
                await asyncio.sleep(2 * request.remaining_s)
            case b"text":
                return "a text"
            case b"bytes":
                return b"bytes"
        return None

    async def _change_routes(self, session: Any) -> str:
        """A route that was added is among the routes of the node until it is deleted."""
        pattern = self._topic()
        there = f"tcp://{self.host.address}:1"
        await session.add_route("here", there, pattern)
        added = [row for row in await session.routes() if pattern in row.values()]
        await session.delete_route("here", there, pattern)
        deleted = [row for row in await session.routes() if pattern in row.values()]
        return "" if added and not deleted else f"a route was told as {added}, and after its end as {deleted}"

    async def _make_mistakes(self, session: Any) -> str:
        """A call that is wrong raises an error that says so, and breaks nothing."""
        topic = self._topic()
        publisher = session.publisher(topic)
        mistakes: tuple[tuple[type[Exception], Callable[[], Any]], ...] = (
            (InvalidTopic, lambda: session.publisher("a//b")),
            (InvalidTopic, lambda: session.subscribe("a//b")),
            (Closed, lambda: session.publisher(topic, source=publisher.source)),
            (LocalError, lambda: publisher.publish_many([b"1", b"2"], ["one key"])),
            (LocalError, lambda: publisher.publish(b"x" * (LIMITS.payload_bytes_max + 1))),
            (InvalidAttributes, lambda: session.request("//call/1000/1/1", priority=99)),
        )
        for expected, mistake in mistakes:
            try:
                result = mistake()
                if asyncio.iscoroutine(result):
                    await result
            except expected:
                continue
            return f"a mistake that raises {expected.__name__} was {result}"
        sent = self._put(topic)
        await publisher.publish(sent.payload.decode())
        self._stored([sent])
        return await self._differs(session, topic, [sent], history=True)
