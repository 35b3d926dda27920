"""Clients over HTTP: one that posts events, and readers by tunnel, Server-Sent Events and WebSocket.

web post URL NAME TOPIC RATE RECORD
web tunnel|sse|ws URL NAME PATTERN RECORD
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from reknit.client.event_loops import run_until_signal
from reknit.client.tunnel import TunnelLost, notify
from reknit.client.tunnel import open as open_tunnel
from reknit.errors import ReknitError
from reknit.testing.chaos.record import DONE, Published, RecordFile, lines, parse, payload

AGAIN_S = 0.3
QUIET_S = 20.0
"""A reader that hears nothing for so long connects again."""


async def post(url: str, name: str, topic: str, rate: float, record: RecordFile) -> None:
    """Post one event after the other, each until it is confirmed."""
    number = Published.read(record.path).last
    while not record.is_stopping:
        number += 1
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    await notify(url, topic, payload(name, number).decode(), id=f"{name}-{number}")
                break
            except (ReknitError, OSError, TimeoutError, EOFError):
                await asyncio.sleep(AGAIN_S)
        record.write("stored", number)
        await asyncio.sleep(1 / rate)
    record.write(DONE)


class Reader:
    """Reads events, and resumes after the last one that it recorded."""

    def __init__(self, url: str, pattern: str, record: RecordFile) -> None:
        self.url, self.pattern, self.record = url, pattern, record
        self.place = ""
        for kind, *words in lines(record.path):
            if kind in ("read", "live", "place"):
                self.place = words[-1]
            elif kind == "broken":
                self.place = ""

    def took(self, data: bytes, place: str) -> None:
        """An event came."""
        self.record.write("read", *parse(data), place)
        self.place = place

    def opened(self, state: str, place: str, why: str = "") -> None:
        """The node said from where on events come."""
        if state == "lost":
            self.broke(why)
        if not self.place:
            self.place = place
            self.record.write("live", place)

    def broke(self, why: str) -> None:
        """The node said that events are missing."""
        self.record.write("broken", why or "without a reason")
        self.place = ""

    async def tunnel(self) -> None:
        """Read a topic with the tunnel client."""
        try:
            async with open_tunnel(
                self.url, self.pattern, checkpoint=self.place, wait_s=QUIET_S, quiet_s_max=QUIET_S
            ) as events:
                self.opened("live", events.checkpoint)
                async for event in events:
                    self.took(event.payload, event.checkpoint)
        except TunnelLost as error:
            self.broke(error.why)

    async def sse(self) -> None:
        """Read as a browser's EventSource does."""
        to = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(to.hostname, to.port)
        place = f"Last-Event-ID: {self.place}\r\n" if self.place else ""
        request = f"GET /sse?topic={quote(self.pattern)} HTTP/1.1\r\nHost: {to.netloc}\r\n{place}\r\n"
        writer.write(request.encode())
        try:
            await reader.readuntil(b"\r\n\r\n")
            rest = b""
            while True:
                async with asyncio.timeout(QUIET_S):
                    size = int(await reader.readline() or b"0", 16)
                    if not size:
                        return
                    rest += (await reader.readexactly(size + 2))[:size]
                *blocks, rest = rest.split(b"\n\n")
                for block in blocks:
                    self._take_block(block.decode())
        finally:
            writer.close()

    def _take_block(self, block: str) -> None:
        fields = {name: value for name, _, value in (line.partition(": ") for line in block.split("\n"))}
        row = json.loads(fields["data"]) if fields.get("data") else {}
        if fields.get("event") == "opened":
            self.opened(row["state"], fields["id"], row.get("why", ""))
        elif row and "event" not in fields:
            self.took(row["payload"].encode(), fields["id"])

    async def ws(self) -> None:
        """Read from a WebSocket."""
        from websockets.asyncio.client import connect

        query = f"topic={quote(self.pattern)}&from={self.place}"
        url = f"ws://{urlsplit(self.url).netloc}/ws?{query}"
        async with connect(url, open_timeout=QUIET_S, ping_timeout=QUIET_S) as socket:
            while True:
                async with asyncio.timeout(QUIET_S):
                    self._take_row(json.loads(await socket.recv()))

    def _take_row(self, row: dict[str, Any]) -> None:
        match row["type"]:
            case "opened":
                self.opened(row["state"], row["checkpoint"], row.get("why", ""))
            case "event":
                self.took(row["payload"].encode(), row["checkpoint"])


async def read(how: str, url: str, pattern: str, record: RecordFile) -> None:
    """Read until stopped, and connect again whenever the connection ends."""
    from websockets.exceptions import WebSocketException

    reader = Reader(url, pattern, record)
    failures = (ReknitError, OSError, EOFError, TimeoutError, ValueError, WebSocketException)
    while True:
        try:
            await getattr(reader, how)()
        except failures as error:
            print(f"{how}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(AGAIN_S)


def main(arguments: list[str]) -> None:
    """Run what the arguments name."""
    match arguments:
        case ["post", url, name, topic, rate, file]:
            program = post(url, name, topic, float(rate), RecordFile(Path(file)))
        case [("tunnel" | "sse" | "ws") as how, url, _, pattern, file]:
            program = read(how, url, pattern, RecordFile(Path(file)))
        case _:
            sys.exit(__doc__)
    with suppress(asyncio.CancelledError):
        run_until_signal(program)


if __name__ == "__main__":
    main(sys.argv[1:])
