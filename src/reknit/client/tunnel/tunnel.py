"""A tunnel as an application uses it, and the driver of its machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Final

from reknit import environment
from reknit.client.http_request import tls_of
from reknit.client.tunnel.connection import TunnelConnection
from reknit.client.tunnel.events import TunnelEvent, TunnelLost
from reknit.config import Config
from reknit.errors import NotConnected
from reknit.protocol.tunnel.client import TunnelClient
from reknit.protocol.tunnel.client_messages import (
    CloseConnection,
    DeliverElements,
    Effect,
    OpenConnection,
    SignalError,
    StartTunnel,
    StateChanged,
    StopTunnel,
)
from reknit.protocol.tunnel.client_messages import TunnelState as State

QUEUE_EVENTS_MAX: Final = 1_000


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
        quiet_s_max: float | None = None,
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
        self._on_state = on_state
        self._machine = TunnelClient(rng or environment.make_random(), quiet_s_max=quiet_s_max)
        self._events: asyncio.Queue[TunnelEvent | None] = asyncio.Queue(QUEUE_EVENTS_MAX)
        self._error: TunnelLost | None = None
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def why(self) -> str:
        """Why the last connection ended, or could not be opened; empty before that."""
        return self._machine.why

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
            raise NotConnected(self._url, self.why or "no answer") from None
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
        form = {"do_method": "route", "kn_from": self._topic, "kn_response_format": "simple"}
        tls = self._tls_context()
        connection = TunnelConnection(self._machine, self._url, self._token, tls, self._perform_within)
        self._machine.receive(StartTunnel(self._checkpoint), "app", self._now())
        while True:
            parameters = await self._perform()
            due = self._machine.next_deadline()
            if parameters is not None:
                await connection.attempt({**form, **parameters})
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
            case OpenConnection() | CloseConnection():
                pass  # `TunnelConnection.attempt` opens it, and closes it when it returns

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
    quiet_s_max: float | None = None,
    on_state: Callable[[State], None] | None = None,
) -> Tunnel:
    """A tunnel from a topic of the server at `url`; with a `checkpoint`, it starts after that.

    `on_state` is called at every change: live, recovering, recovered, lost; `why` of the tunnel says why. A tunnel that
    receives nothing during two heartbeats of its server counts as disconnected; `quiet_s_max` sets another time.
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
