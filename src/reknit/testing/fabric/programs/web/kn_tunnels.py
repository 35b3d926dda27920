"""A tunnel of mod_pubsub as an old client opens it: any format, any parameters, any version of HTTP."""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlencode

from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.web.requests import WebAnswer, request

_CALL: Final = re.compile(rb"<script>parent\.kn_sendCallback\(\{elements:\[(.*)\]\}, window\)</script>\n")
_TEXT: Final = r'("(?:[^"\\]|\\.)*")'
_PAIR: Final = re.compile(rf"\{{name:{_TEXT},value:{_TEXT}\}}")


class ScriptDecoder:
    """Decodes events in the js format, as a browser would run them."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[dict[str, bytes]]:
        """Add bytes, and return the events that are complete."""
        self._buffer += data
        found: list[dict[str, bytes]] = []
        *lines, self._buffer = self._buffer.splitlines(keepends=True) or [b""]
        if self._buffer.endswith(b"\n"):
            lines, self._buffer = [*lines, self._buffer], b""
        for line in lines:
            if call := _CALL.fullmatch(line):
                pairs = _PAIR.findall(call[1].decode())
                found.append({json.loads(name): json.loads(value).encode() for name, value in pairs})
        return found


class KnTunnel:
    """An open tunnel."""

    def __init__(self, answer: WebAnswer, decoder: SimpleDecoder | ScriptDecoder) -> None:
        self._answer, self._decoder = answer, decoder
        self._events: deque[dict[str, bytes]] = deque()

    async def event(self) -> dict[str, bytes]:
        """The elements of the next event. Raises `OSError` if the connection ends, or nothing comes."""
        while not self._events:
            data = await self._answer.part()
            if not data:
                raise ConnectionResetError("the tunnel ended")
            self._events += self._decoder.feed(data)
        return self._events.popleft()


@contextlib.asynccontextmanager
async def kn_tunnel(
    node: FabricNode, topic: str, *, is_js: bool = False, version: str = "1.1", **form: str
) -> AsyncIterator[KnTunnel]:
    """Open a tunnel on a topic; its status event was read. Raises `OSError` if it is refused."""
    fields = {"kn_from": f"/{topic}", "kn_response_format": "js" if is_js else "simple", **form}
    path = f"/kn?do_method=route&{urlencode(fields)}"
    async with request(node, "GET", path, version=version) as answer:
        if answer.code != 200:
            raise ConnectionRefusedError(f"a tunnel on {topic} was answered with {answer.code}")
        tunnel = KnTunnel(answer, ScriptDecoder() if is_js else SimpleDecoder())
        await tunnel.event()
        yield tunnel
