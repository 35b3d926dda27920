"""One connection of a tunnel: a request, and its answer as it comes, as inputs of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from reknit.client.http_request import HttpAnswer, http_request
from reknit.client.tunnel.answers import not_a_tunnel, refusal_of
from reknit.errors import InvalidConfig, MalformedFrame
from reknit.protocol.tunnel.client import TunnelClient
from reknit.protocol.tunnel.client_messages import (
    AnswerRefused,
    BytesHeard,
    ConnectionLost,
    ElementsReceived,
    ReadingResumed,
    StatusReceived,
    TunnelState,
)
from reknit.protocol.tunnel.elements import HASH, ID, PAYLOAD, STATUS
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.transport.tls_failures import failure_of_node

T = TypeVar("T")
Ended = ConnectionLost | AnswerRefused | StatusReceived


class _GivenUp(Exception):
    """The machine gave up the connection: nothing came for too long."""


class TunnelConnection:
    """Opens connections for one machine. `perform` performs its effects, and waits while the application is slow."""

    def __init__(
        self,
        machine: TunnelClient,
        url: str,
        token: str,
        tls: ssl.SSLContext | None,
        perform: Callable[[], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._url = url
        self._token = token
        self._tls = tls
        self._perform = perform

    async def attempt(self, form: Mapping[str, str]) -> None:
        """One connection, from opening it until it is lost or given up."""
        try:
            ended = await self._stream(form)
        except _GivenUp:
            return
        except (OSError, MalformedFrame, InvalidConfig) as error:
            is_tls = isinstance(error, ssl.SSLError)
            why = failure_of_node(error) if is_tls else str(error) or "no answer came in time"
            ended = ConnectionLost(why)
        self._machine.receive(ended, "server", _now())

    async def _stream(self, form: Mapping[str, str]) -> Ended:
        """Open a connection and read until it ends. Returns how it ended."""
        async with contextlib.AsyncExitStack() as stack:
            request = http_request(self._url, form, self._token, self._tls)
            answer = await self._until_due(stack.enter_async_context(request))
            if answer.code != 200:
                return await self._until_due(refusal_of(self._url, answer))
            return await self._follow(answer)

    async def _follow(self, answer: HttpAnswer) -> Ended:
        """Read the events of an answer, the status event first."""
        machine, decoder, is_open = self._machine, SimpleDecoder(), False
        while data := await self._until_due(anext(answer.parts, b"")):
            machine.receive(BytesHeard(), "server", _now())
            try:
                events = decoder.feed(data)
            except MalformedFrame:
                if is_open:
                    raise
                return AnswerRefused(answer.code, not_a_tunnel(self._url, answer, data))
            for elements in events:
                if is_open and STATUS in elements and HASH not in elements and ID not in elements:
                    return ConnectionLost(_text(elements[PAYLOAD]))  # the server says why it closes
                machine.receive(
                    ElementsReceived(elements) if is_open else StatusReceived(elements), "server", _now()
                )
                is_open = True
                await self._perform()
            if machine.state is TunnelState.LOST:
                break
            machine.receive(ReadingResumed(), "app", _now())
        return ConnectionLost(f"the connection ended after HTTP {answer.code}")

    async def _until_due(self, arriving: Awaitable[T]) -> T:
        """Wait for the network until the machine's deadline. Raises `_GivenUp`."""
        due = self._machine.next_deadline()
        limit = asyncio.timeout_at(due)
        try:
            async with limit:
                return await arriving
        except TimeoutError:
            if due is None or not limit.expired():
                raise
            self._machine.tick(max(due, _now()))
            raise _GivenUp from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
