"""Programs that use every page of the HTTP gateway, and know what each has to answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlencode

from reknit.envelope.cloudevents import to_json
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.testing.fabric.nodes import HTTP_PORT, FabricNode
from reknit.testing.fabric.programs.program import Program, Scene, is_peaceful
from reknit.testing.fabric.programs.web.kn_tunnels import KnTunnel, kn_tunnel
from reknit.testing.fabric.programs.web.posters import ADDRESS_TOPIC, cloudevent
from reknit.testing.fabric.programs.web.requests import FAILURES, QUIET_S, answer_to, request
from reknit.testing.fabric.programs.web.visited_pages import BAD_CONVERSATIONS, PAGES
from reknit.testing.fabric.record import Sent

PAGES_AT_ONCE: Final = 8
TUNNELS_MAX: Final = 4
"""How many tunnels one address may have."""
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
CLOSE_FRAME: Final = b"\x88\x80\0\0\0\0"
TEXT_FRAME: Final = b"\x81\x82\0\0\0\0hi"
BAD_FRAME: Final = b"\xf1\x80\0\0\0\0"
"""It has reserved bits set."""


class VisitingProgram(Program):
    """Visits one page after the other. Each act gives what was wrong with the answers; nothing is good.

    An act that a fault interrupts is not judged. Without faults nothing may interrupt one.
    """

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._count = 0

    async def live(self) -> None:
        acts: list[Callable[[], Awaitable[str]]] = [
            self._look_around,
            self._replay,
            self._route,
            self._list_subtopics,
            self._send_status,
            self._send_batch,
            self._send_cloudevents,
            self._repeat,
            self._expire,
            self._break_rules,
            self._talk_over_websocket,
            self._crowd,
        ]
        while not self.scene.is_calm:
            lives, found = self.node.starts, ""
            act = self.rng.choice(acts)
            try:
                found = await act()
            except FAILURES as error:
                found = f"{act.__name__} ended with {error!r}" if is_peaceful(self.scene.plan) else ""
            if found and self.node.starts == lives and self.node.is_up:
                self.scene.record.blame(f"{self.name}: {found}")
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.put_rate))

    # -- publishing

    def _topic(self) -> str:
        """A topic that nobody else uses."""
        self._count += 1
        return f"visit/{self.name}/{self._count}"

    async def _ask(self, **form: str | bytes) -> tuple[int, list[dict[str, bytes]]]:
        """Make a request at `/kn`: the code, and the status events."""
        fields = {"kn_response_format": "simple", **form}
        code, body = await answer_to(self.node, "POST", "/kn", body=urlencode(fields).encode())
        return code, SimpleDecoder().feed(body)

    def _put(self, topic: str) -> Sent:
        self._count += 1
        text = f"{self.name} {self._count} <'é&\n" + "." * self.rng.randrange(50)
        return self.scene.record.put(text.encode(), topic, self.name)

    async def _post(self, topic: str, **form: str) -> Sent:
        """Post an event, which is stored then. Raises `OSError` if the node can't store it now."""
        sent = self._put(topic)
        code, _ = await self._ask(kn_to=f"/{topic}", kn_payload=sent.payload, **form)
        if code != 200:
            raise ConnectionError(f"an event was answered with {code}")
        self.scene.record.stored(sent)
        return sent

    async def _differs(self, tunnel: KnTunnel, *expected: Sent) -> str:
        """What the next events of a tunnel are instead of the expected ones; empty if they are these."""
        for sent in expected:
            event = await tunnel.event()
            if event["kn_payload"] != sent.payload or event["kn_routed_from"] != f"/{sent.topic}".encode():
                return f"a tunnel brought {event}, and not {sent.payload!r} of {sent.topic}"
        return ""

    def _tunnel(self, topic: str, **form: str) -> Any:
        is_js, version = self.rng.random() < 0.4, self.rng.choice(("1.0", "1.1"))
        return kn_tunnel(self.node, topic, is_js=is_js, version=version, **form)

    # -- acts

    async def _look_around(self) -> str:
        """Pages whose answers are always the same."""
        for page in self.rng.sample(PAGES, PAGES_AT_ONCE):
            code, body = await answer_to(self.node, page.method, page.path, page.headers, page.body.encode())
            if code != page.code or page.text not in body.decode():
                return f"{page.method} {page.path[:80]} {page.body[:80]} was answered with {code}: {body[:200]!r}"
        return ""

    async def _replay(self) -> str:
        """A tunnel brings the last events that are asked for, and then those that come."""
        topic = self._topic()
        sent = [await self._post(topic) for _ in range(self.rng.randint(1, 4))]
        count = self.rng.randint(1, 5)
        limits = {"do_max_age": self.rng.choice(("3600", "infinity"))} if self.rng.random() < 0.5 else {}
        if not limits or self.rng.random() < 0.5:
            limits, sent = {**limits, "do_max_n": str(count)}, sent[-count:]
        async with self._tunnel(topic, **limits) as tunnel:
            return await self._differs(tunnel, *sent) or await self._differs(tunnel, await self._post(topic))

    async def _route(self) -> str:
        """A tunnel brings the events of a topic with a route to its own, until the route is deleted."""
        topic, to = self._topic(), self._topic()
        before = [await self._post(topic), await self._post(topic)]
        count = self.rng.randint(0, 2)
        route = {"do_method": "route", "kn_from": f"/{topic}", "kn_id": "way"}
        limit = {"do_max_n": str(count)} if count else {}
        async with self._tunnel(to) as tunnel:
            answers = [await self._ask(**route, kn_to=f"/{to}", **limit) for _ in range(2)]
            statuses = [events[0]["status"] for _, events in answers if events]
            if statuses != [b"200 Routed", b"200 Ignored route"]:
                raise ConnectionError(f"a route was answered with {statuses}")
            populated = before[len(before) - count :]
            found = await self._differs(tunnel, *populated, await self._post(topic))
            if (code := (await self._ask(**route, kn_to=""))[0]) != 200:
                raise ConnectionError(f"a route was deleted with {code}")
            await self._post(topic)
            return found or await self._differs(tunnel, await self._post(to))

    async def _list_subtopics(self) -> str:
        """A tunnel on `kn_subtopics` brings the names that exist, and then new ones."""
        parent = self._topic()
        await self._post(f"{parent}/old")
        async with self._tunnel(f"{parent}/kn_subtopics") as tunnel:
            names = [(await tunnel.event())["kn_payload"]]
            await self._post(f"{parent}/new/deep")
            names.append((await tunnel.event())["kn_payload"])
            return "" if names == [b"old", b"new"] else f"the names under {parent} came as {names}"

    async def _send_status(self) -> str:
        """The status of a request is published where the client wants it."""
        topic = self._topic()
        async with self._tunnel(topic) as tunnel:
            code, _ = await self._ask(do_method="noop", kn_status_to=f"/{topic}", kn_status_from="me")
            if code != 204:
                return f"a request with kn_status_to was answered with {code}"
            event = await tunnel.event()
            is_right = event["status"] == b"200 OK" and event["status_from"] == b"me"
            return "" if is_right else f"a status came as {event}"

    async def _send_batch(self) -> str:
        """Each request of a batch is answered for itself."""
        first, second = self._put(self._topic()), self._put(self._topic())
        parts = [urlencode({"kn_to": f"/{one.topic}", "kn_payload": one.payload}) for one in (first, second)]
        fields = [*parts, "do_method=noop", "kn_to=/a/.b", "do_method=route&kn_from=/a"]
        pairs = [("kn_batch", one) for one in fields] + [("kn_response_format", "simple")]
        _, body = await answer_to(
            self.node, "POST", "/kn", body=urlencode([("do_method", "batch"), *pairs]).encode()
        )
        statuses = [event["status"] for event in SimpleDecoder().feed(body)]
        for sent, status in zip((first, second), statuses[1:], strict=False):
            if status != b"200 Notified":
                raise ConnectionError(f"an event was answered with {status!r}")
            self.scene.record.stored(sent)
        expected = [b"200 Processing batch", b"200 Notified", b"200 Notified", b"200 OK", b"400 Bad Request"]
        is_right = statuses == [*expected, b"400 Bad Request"]
        return "" if is_right else f"a batch was answered with {statuses}"

    async def _send_cloudevents(self) -> str:
        """A list of CloudEvents is stored as a whole."""
        several = [self._put(ADDRESS_TOPIC) for _ in range(self.rng.randint(1, 3))]
        events = [to_json(cloudevent(self.node.host.time_us(), self.rng), sent.payload) for sent in several]
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        code, text = await answer_to(self.node, "POST", "/cloudevents", headers, b"[%b]" % b",".join(events))
        if code != 200:
            return "" if code == 503 else f"{len(events)} events were answered with {code}: {text!r}"
        for sent in several:
            self.scene.record.stored(sent)
        return (
            ""
            if text == b"%d stored\n" % len(events)
            else f"{len(events)} events were answered with {text!r}"
        )

    async def _repeat(self) -> str:
        """An event that is posted twice with one id is stored once; one with another text is another event."""
        topic, sent = self._topic(), self._put(self._topic())
        for _ in range(2):
            code, _ = await self._ask(kn_to=f"/{topic}", kn_id="same", kn_payload=sent.payload)
            if code != 200:
                raise ConnectionError(f"an event was answered with {code}")
        last = await self._post(topic, kn_id="same")
        async with self._tunnel(topic, do_max_age="infinity") as tunnel:
            first = (await tunnel.event())["kn_payload"]
            return await self._differs(tunnel, last) if first == sent.payload else f"{first!r} came first"

    async def _expire(self) -> str:
        """An event is not replayed after its time to live. One whose time can't be read, or is infinite, stays."""
        topic = self._topic()
        for expires in ("+0.2", str(self.node.host.time_us() / 1e6 + 0.1)):
            code, _ = await self._ask(kn_to=f"/{topic}", kn_payload="gone", kn_expires=expires)
            if code != 200:
                raise ConnectionError(f"an event was answered with {code}")
        kept = [await self._post(topic, kn_expires=text) for text in ("soon", "infinity", "+inf", "+1000")]
        await asyncio.sleep(0.5)
        async with self._tunnel(topic, do_max_age="infinity") as tunnel:
            return await self._differs(tunnel, *kept)

    async def _break_rules(self) -> str:
        """A client that does not speak HTTP is told so, and its connection is closed."""
        for bad in BAD_CONVERSATIONS:
            opening = asyncio.open_connection(self.node.host.address, HTTP_PORT)
            reader, writer = await asyncio.wait_for(opening, QUIET_S)
            try:
                writer.write(bad.data)
                found = await _read_to_the_end(reader)
            finally:
                writer.transport.abort()
            if found is not None and not bad.is_right(found.decode()):
                return f"{bad.data[:40]!r} was answered with {found[-200:]!r}"
        return ""

    async def _talk_over_websocket(self) -> str:
        """What a client says on a WebSocket is ignored, except for a close. Nonsense is told so."""
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY}
        headers["Sec-WebSocket-Version"] = "13"
        path = f"/ws?topic={self._topic()}"
        for frame in (CLOSE_FRAME, BAD_FRAME):
            async with request(self.node, "GET", path, headers) as answer:
                if answer.code != 101:
                    return f"a WebSocket was answered with {answer.code}"
                answer.writer.write(TEXT_FRAME + frame)
                found = await _read_to_the_end(answer.reader)
            if found is not None and (b"opened" not in found or b"\x88" not in found):
                return f"{frame!r} was answered with {found!r}"
        return ""

    async def _crowd(self) -> str:
        """One address has no more tunnels than configured; the next one is told why."""
        topic, states = self._topic(), list[str]()
        async with contextlib.AsyncExitStack() as opened:
            for _ in range(TUNNELS_MAX + 1):
                answer = await opened.enter_async_context(request(self.node, "GET", f"/sse?topic={topic}"))
                first = await answer.first_event()
                states.append(first.partition(b"event: ")[2].split(b"\n")[0].decode())
            code, _ = await answer_to(self.node, "GET", f"/kn?kn_from=/{topic}")
        is_right = states[-1] == "closing" and code == 503
        return (
            "" if is_right else f"tunnels of one address were {states}, and one more was answered with {code}"
        )


async def _read_to_the_end(reader: asyncio.StreamReader) -> bytes | None:
    """Everything that comes until the connection is closed; None if it is reset.

    A node that closes a connection on which more comes resets it, and with that the answer may be gone.
    """
    found = b""
    try:
        while part := await asyncio.wait_for(reader.read(1 << 16), 3 * QUIET_S):
            found += part
    except ConnectionResetError:
        return None
    return found
