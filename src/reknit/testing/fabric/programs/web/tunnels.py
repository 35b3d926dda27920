"""Programs that read events over HTTP: the tunnel client of this package, Server-Sent Events and WebSocket.

Each keeps the place after the last event that it processed as on a disk, and resumes there after a crash of its own.
"""

from __future__ import annotations

import asyncio
import base64
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from reknit.batch import Batch
from reknit.client.tunnel import State, TunnelLost
from reknit.client.tunnel import open as open_tunnel
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import AGAIN_S, ListeningProgram, Scene
from reknit.testing.fabric.programs.web.requests import FAILURES, QUIET_S, WebAnswer, request
from reknit.testing.fabric.record import REDRIVEN, Reading

Format = Literal["sse", "json", "binary"]


class ReadingProgram(ListeningProgram):
    """Reads, and resumes where it left off."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str, is_strict: bool) -> None:
        super().__init__(scene, name, node)
        self.pattern, self.is_strict = pattern, is_strict
        self._place = ""
        self._reading: Reading | None = None

    @property
    def is_done(self) -> bool:
        return self._reading is not None

    async def live(self) -> None:
        self.is_open = False
        if self._reading is not None:
            self._reading.lives.append({})
        while True:
            await self._read()
            await asyncio.sleep(AGAIN_S)

    @abstractmethod
    async def _read(self) -> None:
        """Read from the place on, until the connection breaks or nothing can be read from there any more."""

    def _began(self, place: str) -> None:
        """Events from here on are promised."""
        self._place = place
        self._reading = Reading(
            self.name, self.pattern, self.node.name, self.is_strict, self.scene.fabric.loop.now, [{}]
        )
        self.scene.record.readings.append(self._reading)
        self.is_open = True

    def _lost(self, why: str) -> None:
        """It can't resume."""
        if self._reading is not None:
            self._reading.is_over = True
            if self.is_strict and not any(one.node == self.node.name for one in self.scene.replaced):
                self.scene.record.blame(f"{self.name} can't resume from {self._place}: {why}")
        self._reading, self._place = None, ""

    def _took(self, payload: bytes, place: str, headers: Collection[str] = ()) -> None:
        """An event was processed."""
        reading = self._reading
        if reading is None:
            self.scene.record.blame(f"{self.name} got {payload!r} before it was told that it is live")
            return
        if self.is_strict:
            before, after = JournalPlace.parse(self._place), JournalPlace.parse(place)
            if before.epoch == after.epoch and after <= before:
                self.scene.record.blame(f"{self.name} got {payload!r} at {place}, after {self._place}")
        self._count(payload, headers)
        self._place = place

    def _count(self, payload: bytes, headers: Collection[str]) -> None:
        if self._reading is not None and REDRIVEN not in headers:
            seen = self._reading.lives[-1]
            seen[payload] = seen.get(payload, 0) + 1


class TunnelProgram(ReadingProgram):
    """Reads a topic with the tunnel client, which reconnects by itself."""

    async def _read(self) -> None:
        def on_state(state: State) -> None:
            if state is State.LIVE:
                self._began(tunnel.checkpoint)
            self.is_open = state in (State.LIVE, State.RECOVERED)

        tunnel = open_tunnel(
            self.node.http_url,
            self.pattern,
            checkpoint=self._place,
            wait_s=30.0,
            quiet_s_max=QUIET_S,
            on_state=on_state,
        )
        try:
            async with tunnel:
                async for event in tunnel:
                    self._took(event.payload, event.checkpoint, event.elements)
                    await self.think()
        except TunnelLost as error:
            self._lost(error.why)


CHANNEL: Final = 7
CREDIT_BYTES: Final = 2_000


class PatternReadingProgram(ReadingProgram):
    """Reads the topics of a pattern, as a browser would: in batches as a channel with credit, else on its own."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str, format: Format) -> None:
        super().__init__(scene, name, node, pattern, is_strict=True)
        self._format = format

    async def _read(self) -> None:
        try:
            if self._format == "sse":
                await self._read_sse()
            else:
                await self._read_websocket()
        except FAILURES:
            pass
        self.is_open = False

    def _opened(self, state: str, place: str, why: str) -> None:
        if state == "lost":
            self._lost(why)
        if self._reading is None:
            self._began(place)
        elif state != "recovered":
            self.scene.record.blame(
                f"{self.name} asked to resume from {self._place}, and the answer is {state}"
            )
        self.is_open = True

    async def _read_sse(self) -> None:
        headers = {"Last-Event-ID": self._place} if self._place else {}
        path = f"/sse?topic={quote(self.pattern)}"
        async with request(self.node, "GET", path, headers) as answer:
            async for fields in _sse_events(answer):
                kind, data = fields.get("event", ""), fields.get("data", "")
                row = msgspec.json.decode(data) if data else {}
                if kind == "opened":
                    self._opened(row["state"], fields["id"], row.get("why", ""))
                elif data and not kind:
                    self._took(_payload(row), fields["id"], row.get("headers", ()))
                elif kind == "heartbeat" and self._reading is not None:
                    self._place = fields["id"]

    async def _read_websocket(self) -> None:
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key}
        headers["Sec-WebSocket-Version"] = "13"
        path = f"/ws?topic={quote(self.pattern)}&format={self._format}&from={self._place}"
        is_channel = self._format == "binary"
        if is_channel:
            path = "/ws?format=binary"
        async with request(self.node, "GET", path, headers) as answer:
            if answer.code != 101:
                return
            mask = self.rng.getrandbits(32).to_bytes(4, "big")
            say = partial(_say, answer, mask)
            if is_channel:
                say(open=self.pattern, channel=CHANNEL, credit=CREDIT_BYTES, **{"from": self._place})
            async for message in _messages(answer, mask):
                if isinstance(message, bytes):
                    self._take_batch(message)
                elif (row := msgspec.json.decode(message))["type"] == "mark":
                    say(taken=row["bytes"], channel=row["channel"])
                elif row["type"] == "closed":
                    return
                else:
                    self._take_row(row)

    def _take_row(self, row: dict[str, Any]) -> None:
        match row["type"]:
            case "opened":
                self._opened(row["state"], row["checkpoint"], row.get("why", ""))
            case "event":
                self._took(_payload(row), row["checkpoint"], row.get("headers", ()))
            case "heartbeat":
                self._place = row["checkpoint"]

    def _take_batch(self, message: bytes) -> None:
        place, skip, data = msgspec.msgpack.decode(message)
        *several, last = Batch.parse(data).events()[skip:]
        for event in several:
            self._count(bytes(event.payload), event.headers)  # there is no place within a batch
        self._took(bytes(last.payload), place, last.headers)


def _payload(row: dict[str, str]) -> bytes:
    found = row.get("payload")
    return base64.b64decode(row["payload_base64"]) if found is None else found.encode()


async def _sse_events(answer: WebAnswer) -> AsyncIterator[dict[str, str]]:
    """The fields of each event."""
    rest = b""
    while data := await answer.part():
        *blocks, rest = (rest + data).split(b"\n\n")
        for block in blocks:
            lines = (line.partition(": ") for line in block.decode().split("\n") if line)
            yield {name: value for name, _, value in lines}


def _say(answer: WebAnswer, mask: bytes, **message: object) -> None:
    """Say something on a WebSocket."""
    data = msgspec.json.encode(message)
    masked = bytes(one ^ mask[at % 4] for at, one in enumerate(data))
    size = len(data)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    answer.writer.write(b"\x81" + length + mask + masked)


async def _messages(answer: WebAnswer, mask: bytes) -> AsyncIterator[bytes | str]:
    """The messages on a WebSocket, until it is closed. It is pinged once."""
    from wsproto import ConnectionType
    from wsproto.connection import Connection
    from wsproto.events import BytesMessage, CloseConnection, TextMessage

    connection = Connection(ConnectionType.CLIENT)
    answer.writer.write(b"\x89\x84" + mask + bytes(a ^ b for a, b in zip(b"ping", mask, strict=True)))
    parts: list[Any] = []
    while data := await answer.raw():
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, CloseConnection):
                return
            if isinstance(event, (TextMessage, BytesMessage)):
                parts.append(event.data)
                if event.message_finished:
                    yield "".join(parts) if isinstance(event, TextMessage) else b"".join(parts)
                    parts = []
