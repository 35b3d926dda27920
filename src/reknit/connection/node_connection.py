"""The connection to one node: it introduces itself, keeps itself alive, and reconnects with back-off when it breaks."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

from reknit import environment
from reknit.config import Config
from reknit.connection.futures import fail_all
from reknit.errors import MalformedFrame, NotConnected, Refused, ReknitError, TlsFailed, VersionMismatch
from reknit.frame import Buffer
from reknit.outcome import Code
from reknit.transport import memory, tcp
from reknit.transport.connection import Connection
from reknit.transport.tls import client_tls
from reknit.transport.tls_failures import failure_of_node
from reknit.trust.own_token import own_token
from reknit.wire.codec import Item, encode
from reknit.wire.messages import VERSION, Bye, Hello, Message, Ping, Pong, Welcome

log = logging.getLogger("reknit.client")


class ConnectionUser(Protocol):
    """Uses a connection, and hears of the events on it."""

    def connected(self, welcome: Welcome) -> None:
        """The node has introduced itself, for the first time or after a reconnection."""

    def disconnected(self) -> None:
        """The connection broke; it is being opened again."""

    def received(self, items: list[Item]) -> None:
        """Messages and batches came in."""


class NodeConnection:
    """One connection to a node. It is opened again whenever it breaks."""

    def __init__(
        self,
        url: str,
        name: str,
        user: ConnectionUser,
        config: Config,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        role: str = "client",
        on_problem: Callable[[str], None] | None = None,
        guest: memory.Guest | None = None,
    ) -> None:
        self.url = url
        self.welcome: Welcome | None = None
        self._name, self._token, self._role = name, token, role
        self._hello = Hello(VERSION, name, token, role)
        self._user = user
        self._config = config
        self._tls = tls
        self._guest = guest
        """For whom a connection within the process is; None: for a part of the process."""
        self._on_problem = on_problem
        self._connection: Connection | None = None
        self._ready: asyncio.Future[Welcome] | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._refusal: Exception | None = None
        self.problem = ""
        """Why there is no connection, while attempts to connect fail."""
        self._rng = environment.make_random()
        self._is_closing = False

    @property
    def is_up(self) -> bool:
        return self.welcome is not None

    @property
    def epoch(self) -> str:
        """The epoch of the node's journal; empty while there is no connection."""
        return "" if self.welcome is None else self.welcome.epoch

    def send(self, *messages: Message) -> None:
        """Send messages if the connection is up. Otherwise drop them: users repeat what matters after a reconnection."""
        self.send_buffers([encode(message) for message in messages])

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send encoded frames if the connection is up. Otherwise drop them."""
        if self._connection is not None and self.welcome is not None:
            self._connection.send(buffers)

    # -- life

    async def open(self, wait_s: float) -> None:
        """Connect, retrying for `wait_s`; then stay connected until `close`. Raises `NotConnected`, `RemoteError`."""
        deadline = asyncio.get_running_loop().time() + wait_s
        attempt = 0
        while True:
            try:
                await self._connect()
                break
            except (OSError, NotConnected) as error:
                attempt += 1
                failure = self._failed(error)
                left_s = deadline - asyncio.get_running_loop().time()
                if left_s <= 0:
                    raise failure from None
                await asyncio.sleep(min(self._pause_s(attempt), left_s))
        self._task = asyncio.create_task(self._keep())

    async def _connect(self) -> None:
        """Open a connection and wait for the node's welcome."""
        # the file of one's own token may have another by now; a guest has no part in it
        token = self._token if self._token or self._guest else own_token(self._config.security)
        self._hello = Hello(VERSION, self._name, token, self._role)
        self._gone.clear()
        self._refusal = None
        self._ready = asyncio.get_running_loop().create_future()
        timeout_s: float | None = None
        if self.url.startswith("memory://"):  # the node is there, however long it is busy
            memory.connect(self.url, self, self._guest)
        else:
            timeout_s = self._config.transport.hello_timeout_s
            await tcp.connect(self.url, self, tls=self._tls_context())
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready
        except TimeoutError:
            self.drop()
            raise NotConnected(
                self.url, "something listens there, but it does not answer as a node"
            ) from None

    def _tls_context(self) -> ssl.SSLContext | None:
        """The given context, or the one of `[transport]`, for an address with TLS. Raises `InvalidConfig`."""
        return (self._tls or client_tls(self._config)) if self.url.startswith("tls:") else None

    def _failed(self, error: OSError | ReknitError) -> ReknitError:
        """An attempt to connect failed: report it if the reason is new."""
        failure = error if isinstance(error, ReknitError) else _failure(self.url, error)
        why = failure.why if isinstance(failure, NotConnected) else str(failure)
        if why != self.problem:
            self.problem = why
            if self._on_problem is not None:
                self._on_problem(why)
        return failure

    async def _keep(self) -> None:
        """Watch the connection, and open it again whenever it breaks."""
        while True:
            await self._watch()
            attempt = 0
            while not self.is_up:
                attempt += 1
                await asyncio.sleep(self._pause_s(attempt))
                try:
                    await self._connect()
                    log.info("reconnected to %s", self.url)
                except (OSError, ReknitError) as error:
                    self._failed(error)
                    log.debug("%s: attempt %d to reconnect failed: %s", self.url, attempt, error)

    async def _watch(self) -> None:
        settings = self._config.transport
        loop = asyncio.get_running_loop()
        while not self._gone.is_set():
            try:
                async with asyncio.timeout(settings.heartbeat_s):
                    await self._gone.wait()
            except TimeoutError:
                if self._connection is None:
                    return
                silent_s = loop.time() - self._connection.received_at
                if silent_s > settings.peer_timeout_s:
                    log.warning("%s was silent for %.1f s: reconnecting", self.url, silent_s)
                    self.drop()
                elif silent_s > settings.heartbeat_s:
                    self.send(Ping())

    def _pause_s(self, attempt: int) -> float:
        settings = self._config.transport
        ceiling = min(
            settings.reconnect_backoff_s_max, settings.reconnect_backoff_s_min * 2.0 ** min(attempt - 1, 30)
        )
        return self._rng.uniform(ceiling / 2, ceiling)

    def drop(self) -> None:
        """Break the connection. It is opened again."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Say goodbye to the node, and close the connection without opening it again."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self.send(Bye(Code.OK, "done"))
            self._connection.close()
            try:
                async with asyncio.timeout(1.0):
                    await self._gone.wait()
            except TimeoutError:
                self.drop()

    # -- called by the transport

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        connection.send((encode(self._hello),))

    def received(self, connection: Connection, items: list[Item]) -> None:
        rest: list[Item] = []
        for item in items:
            match item:
                case Ping():
                    self.send(Pong())
                case Pong():
                    pass
                case Welcome():
                    self._welcomed(item)
                case Bye(code=code, text=text):
                    self._dismissed(code, text)
                case _:
                    rest.append(item)
        if rest:
            self._user.received(rest)

    def _welcomed(self, welcome: Welcome) -> None:
        if welcome.version != VERSION:
            self._fail(VersionMismatch(VERSION, welcome.version))
            self.drop()
            return
        self.welcome = welcome
        self.problem = ""
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(welcome)
        self._user.connected(welcome)

    def _dismissed(self, code: int, text: str) -> None:
        if code not in (Code.OK, Code.UNAVAILABLE):
            log.warning("%s closed the connection: %s", self.url, text)
        self._refusal = Refused(code, text)

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        log.error("%s broke the protocol: %s", self.url, error)
        self._refusal = error
        connection.abort()

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """Nothing to do: every user has a window of its own."""

    def lost(self, connection: Connection) -> None:
        was_up = self.is_up
        self._connection = None
        self.welcome = None
        self._gone.set()
        self._fail(self._refusal or self._loss(connection))
        if was_up:
            if not self._is_closing:
                reason = self.goodbye_text
                log.warning(
                    "the connection to %s broke%s: reconnecting", self.url, f" ({reason})" if reason else ""
                )
            self._user.disconnected()

    def _loss(self, connection: Connection) -> NotConnected:
        """Why a connection broke before the node's welcome. A node refuses a certificate after a client's handshake."""
        failure = connection.failure if isinstance(connection, tcp.TcpConnection) else None
        if isinstance(failure, ssl.SSLError):
            return TlsFailed(self.url, failure_of_node(failure))
        hint = "; if the node listens with TLS, connect to tls://" if self.url.startswith("tcp:") else ""
        return NotConnected(self.url, f"the connection was closed before a welcome arrived{hint}")

    @property
    def goodbye_text(self) -> str:
        """The reason that the node gave when it closed the connection, if it did."""
        return self._refusal.text if isinstance(self._refusal, Refused) else ""

    def _fail(self, error: Exception) -> None:
        if self._ready is not None:
            fail_all(
                [self._ready], error
            )  # nobody may await it: the connection was lost while the session was closed


def _failure(url: str, error: OSError) -> NotConnected:
    """Why a connection could not be opened."""
    if url.startswith("tls:") and isinstance(
        error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError
    ):
        return TlsFailed(url, failure_of_node(error))
    return NotConnected(url, error.strerror or str(error))
