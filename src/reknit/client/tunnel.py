"""Tunnels for Python programs: events over HTTP that resume where they left off, or an error if they can't.

async with reknit.client.tunnel.open("http://127.0.0.1:8080", "/what/chat") as tunnel:
    async for event in tunnel:
        print(event.payload)
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Final

import msgspec

from reknit import environment
from reknit.client.http_request import http_request, tls_of
from reknit.config import Config
from reknit.errors import InvalidConfig, MalformedFrame, NotConnected, RemoteError, TlsFailed
from reknit.protocol.tunnel.client import (
    BytesHeard,
    ConnectionLost,
    DeliverElements,
    Effect,
    ElementsReceived,
    OpenConnection,
    SignalError,
    StartTunnel,
    StateChanged,
    StatusReceived,
    StopTunnel,
    TunnelClient,
)
from reknit.protocol.tunnel.client import TunnelState as State
from reknit.protocol.tunnel.elements import CHECKPOINT, HASH, ID, LOCATION, PAYLOAD, ROUTED_FROM, STATUS
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.transport.tls_failures import failure_of_node

__all__ = ["State", "Tunnel", "TunnelEvent", "TunnelLost", "notify", "open"]

QUEUE_EVENTS_MAX: Final = 1_000
ANSWER_S: Final = 60.0
"""How long an event that is posted may take to be confirmed."""


class TunnelLost(RemoteError):
    """The tunnel can't resume where it left off: events may be missing. Open a new one to start from now.

    >>> print(TunnelLost("404 Expired"))
    the tunnel is lost: 404 Expired; events may be missing, open a new one to start from now
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the tunnel is lost: {self.why}; events may be missing, open a new one to start from now"


class TunnelEvent(msgspec.Struct, frozen=True):
    """One event, as its elements."""

    elements: Mapping[str, bytes]

    def get(self, name: str, default: str = "") -> str:
        """An element as text."""
        value = self.elements.get(name)
        return default if value is None else value.decode("utf-8", "replace")

    @property
    def payload(self) -> bytes:
        return self.elements.get(PAYLOAD, b"")

    @property
    def id(self) -> str:
        return self.get(ID)

    @property
    def topic(self) -> str:
        """The topic that it was published on, without the leading slash."""
        return self.get(ROUTED_FROM).lstrip("/")

    @property
    def location(self) -> str:
        """The route that delivered it."""
        return self.get(LOCATION)

    @property
    def checkpoint(self) -> str:
        """The checkpoint after it, for a later program's `open(…, checkpoint=…)`."""
        return self.get(CHECKPOINT)


class Tunnel:
    """The events of one topic or journal. Made by `open`; used with `async with`, read with `async for`."""

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        checkpoint: str = "",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        config: Config | None = None,
        wait_s: float = 5.0,
        quiet_s_max: float = 45.0,
        on_state: Callable[[State], None] | None = None,
        rng: Random | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._topic = "/" + topic.strip("/")
        self._checkpoint = checkpoint
        self._token = token
        self._tls = tls
        self._config = config or Config()
        self._wait_s = wait_s
        self._quiet_s_max = quiet_s_max
        self._on_state = on_state
        self._machine = TunnelClient(rng or environment.make_random())
        self._events: asyncio.Queue[TunnelEvent | None] = asyncio.Queue(QUEUE_EVENTS_MAX)
        self._error: TunnelLost | None = None
        self._opened = asyncio.Event()
        self._last_cut = "no answer"
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def checkpoint(self) -> str:
        """The checkpoint after the last event that arrived."""
        return self._machine.checkpoint

    @property
    def scheme(self) -> str:
        """How the server wants clients to reconnect."""
        return self._machine.scheme

    @property
    def repeats(self) -> int:
        """How many events arrived again after a reconnection and were dropped."""
        return self._machine.repeats

    # -- life

    async def __aenter__(self) -> Tunnel:
        self._tls_context()  # a certificate that can't be used is no reason to retry
        self._task = asyncio.create_task(self._run())
        try:
            await asyncio.wait_for(self._opened.wait(), self._wait_s)
        except TimeoutError:
            await self.close()
            raise NotConnected(self._url, self._last_cut) from None
        if self._error is not None:
            await self.close()
            raise self._error
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the tunnel."""
        self._machine.receive(StopTunnel(), "app", self._now())
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aiter__(self) -> AsyncIterator[TunnelEvent]:
        """Every event once. Raises `TunnelLost` if the tunnel can't resume."""
        while (event := await self._events.get()) is not None:
            yield event
        if self._error is not None:
            raise self._error

    # -- the machine's driver

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _run(self) -> None:
        self._machine.receive(StartTunnel(self._checkpoint), "app", self._now())
        while True:
            parameters = await self._perform()
            due = self._machine.next_deadline()
            if parameters is not None:
                await self._attempt(parameters)
            elif due is not None:
                await asyncio.sleep(max(0.0, due - self._now()))
                self._machine.tick(max(due, self._now()))
            else:
                break
        await self._events.put(None)

    async def _perform(self) -> dict[str, str] | None:
        """Perform the machine's effects; returns the parameters if it wants to connect."""
        parameters: dict[str, str] | None = None
        for effect in self._machine.take_effects():
            if isinstance(effect, OpenConnection):
                parameters = effect.parameters
            else:
                await self._do(effect)
        return parameters

    async def _do(self, effect: Effect) -> None:
        match effect:
            case DeliverElements(elements=elements):
                await self._events.put(TunnelEvent(elements))
            case SignalError(why=why):
                self._error = TunnelLost(why)
                self._opened.set()
            case StateChanged(state=state):
                if state in (State.LIVE, State.RECOVERED):
                    self._opened.set()
                if self._on_state is not None:
                    self._on_state(state)
            case OpenConnection():
                pass

    async def _attempt(self, parameters: dict[str, str]) -> None:
        try:
            why = await self._stream(parameters)
        except TimeoutError as error:
            why = str(error) or f"the server sent nothing for {self._quiet_s_max:.0f} s"
        except (OSError, MalformedFrame, InvalidConfig) as error:
            is_tls = isinstance(error, ssl.SSLError)
            why = failure_of_node(error) if is_tls else str(error) or type(error).__name__
        self._last_cut = why
        self._machine.receive(ConnectionLost(why), "server", self._now())

    async def _stream(self, parameters: dict[str, str]) -> str:
        """Read until the connection ends; returns the reason."""
        form = {"do_method": "route", "kn_from": self._topic, "kn_response_format": "simple", **parameters}
        async with http_request(self._url, form, self._token, self._tls_context()) as (code, chunks):
            decoder = SimpleDecoder()
            is_open = False
            while True:
                data = await asyncio.wait_for(anext(chunks, b""), self._quiet_s_max)
                if not data:
                    return f"the connection ended after HTTP {code}"
                self._machine.receive(BytesHeard(), "server", self._now())
                for elements in decoder.feed(data):
                    if is_open and STATUS in elements and HASH not in elements and ID not in elements:
                        return elements[PAYLOAD].decode("utf-8", "replace")  # the server says why it closes
                    message = ElementsReceived(elements) if is_open else StatusReceived(elements)
                    is_open = True
                    self._machine.receive(message, "server", self._now())
                    await self._perform_within()

    def _tls_context(self) -> ssl.SSLContext | None:
        return tls_of(self._url, self._tls, self._config)

    async def _perform_within(self) -> None:
        if await self._perform() is not None:
            raise AssertionError("the machine connects while it is connected")


def open(
    url: str,
    topic: str,
    *,
    checkpoint: str = "",
    token: str = "",
    tls: ssl.SSLContext | None = None,
    config: Config | None = None,
    wait_s: float = 5.0,
    quiet_s_max: float = 45.0,
    on_state: Callable[[State], None] | None = None,
) -> Tunnel:
    """A tunnel from a topic of the server at `url`; with a `checkpoint`, it starts after that.

    `on_state` is called at every change: live, recovering, recovered, lost. A tunnel that receives nothing for
    `quiet_s_max` seconds, not even a heartbeat, counts as disconnected.
    """
    return Tunnel(
        url,
        topic,
        checkpoint=checkpoint,
        token=token,
        tls=tls,
        config=config,
        wait_s=wait_s,
        quiet_s_max=quiet_s_max,
        on_state=on_state,
    )


async def notify(
    url: str,
    topic: str,
    payload: str | bytes,
    *,
    id: str = "",
    token: str = "",
    tls: ssl.SSLContext | None = None,
    config: Config | None = None,
    **elements: str,
) -> None:
    """Post an event; returns when it is stored. With an `id`, posting it again changes nothing.

    Raises `NotConnected`, `RemoteError`.
    """
    form: dict[str, str | bytes] = {"do_method": "notify", "kn_to": "/" + topic.strip("/"), **elements}
    form |= {"kn_response_format": "simple", PAYLOAD: payload}
    if id:
        form[ID] = id
    context = tls_of(url, tls, config or Config())
    decoder = SimpleDecoder()
    found: list[dict[str, bytes]] = []
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            http_request(url.rstrip("/"), form, token, context, "POST") as (code, chunks),
        ):
            async for data in chunks:
                found += decoder.feed(data)
    except ssl.SSLError as error:
        raise TlsFailed(url, failure_of_node(error)) from None
    except OSError as error:
        raise NotConnected(url, str(error) or "no answer came in time") from None
    if code != 200:
        text = found[0][PAYLOAD].decode("utf-8", "replace") if found else ""
        raise RemoteError(f"the server refused the event: HTTP {code} {text}".strip())
