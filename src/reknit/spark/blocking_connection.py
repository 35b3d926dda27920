"""A blocking connection to a node on a plain socket: requests and answers, and batches to publish.

For Spark's workers, which do one thing at a time: an event loop would only add cost.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from io import BufferedReader
from types import TracebackType
from typing import Any, Final, Self, cast

import msgspec

from reknit.errors import (
    Gone,
    InvalidConfig,
    MalformedFrame,
    NotConnected,
    Refused,
    TlsFailed,
    VersionMismatch,
)
from reknit.frame import FRAME_BYTES_MAX, KIND_MESSAGE, PREFIX_BYTES, Buffer, peek
from reknit.outcome import Code
from reknit.transport.tcp import parse_url
from reknit.transport.tls import NO_FILES, TlsFiles, client_context
from reknit.transport.tls_failures import failure_of_node
from reknit.wire.codec import AnyMessage, decode, encode
from reknit.wire.messages import VERSION, Answer, Ask, Bye, Hello, Message, Ping, Pong, Welcome

__all__ = ["BlockingConnection", "JournalSpan"]

READ_BYTES: Final = 8 << 20


class JournalSpan(msgspec.Struct, frozen=True):
    """Which journal a node has, and how far it reaches."""

    node: str
    epoch: str
    start: int
    end: int
    data_dir: str = ""
    """The journal's directory on the node's machine, if it is on disk."""
    position: int = -1
    """Everything stored since the requested time is at or after this position."""
    dead_letter_topic: str = ""
    """The topic of the node's dead letters; empty if it does not say."""


class BlockingConnection:
    """One connection, for one thread at a time.

    Its methods raise `NotConnected` if there is no node, or the connection breaks.
    """

    def __init__(self, url: str, token: str = "", timeout_s: float = 10.0, tls: TlsFiles = NO_FILES) -> None:
        self.url = url
        self._count = 0
        try:
            self._socket = _connect(url, timeout_s, tls)
        except OSError as error:
            raise _failure(url, error) from None
        self._reader = cast(BufferedReader, self._socket.makefile("rb", buffering=1 << 16))
        try:
            self.welcome = self._greet(token)
        except BaseException:
            self.close()
            raise

    def _greet(self, token: str) -> Welcome:
        self.send(Hello(VERSION, "spark", token))
        welcome = self.receive()
        if not isinstance(welcome, Welcome):
            raise NotConnected(self.url, "the program at this address is not a reknit node")
        if welcome.version != VERSION:
            raise VersionMismatch(VERSION, welcome.version)
        return welcome

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- messages

    def send(self, *messages: Message) -> None:
        """Send messages."""
        self.send_bytes(b"".join(map(encode, messages)))

    def send_bytes(self, data: Buffer) -> None:
        """Send whole frames."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _failure(self.url, error) from None

    def receive(self) -> AnyMessage:
        """The next message. Pings are answered here."""
        while True:
            message = self._next()
            match message:
                case Ping():
                    self.send(Pong())
                case Pong():
                    pass
                case Bye(code=code, text=text) if code not in (Code.OK, Code.UNAVAILABLE):
                    raise Refused(code, text)
                case Bye(text=text):
                    raise NotConnected(self.url, text)
                case _:
                    return message

    def _next(self) -> AnyMessage:
        prefix = bytes(self._take(PREFIX_BYTES))
        kind, length = peek(prefix, 0, len(prefix), FRAME_BYTES_MAX)
        if kind != KIND_MESSAGE:
            raise MalformedFrame(f"received a frame of kind {kind} instead of a message", self.url)
        return decode(prefix + bytes(self._take(length - PREFIX_BYTES)))

    def _take(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            try:
                count = self._reader.readinto(view[at:])
            except OSError as error:
                raise _failure(self.url, error) from None
            if not count:
                raise NotConnected(self.url, "it closed the connection")
            at += count
        return data

    # -- requests

    def ask(self, what: str, **args: Any) -> Any:
        """Send a request; returns the answer's body. Raises `Gone`, `Refused`."""
        return self.ask_raw(what, **args)[0]

    def ask_raw(self, what: str, **args: Any) -> tuple[Any, memoryview]:
        """As `ask`; also returns the journal's bytes that follow the answer."""
        self._post(what, args)
        return self._answer()

    def _post(self, what: str, args: dict[str, Any]) -> None:
        self._count += 1
        self.send(Ask(self._count, what, args))

    def _answer(self) -> tuple[Any, memoryview]:
        while not isinstance(answer := self.receive(), Answer):
            pass
        data = memoryview(self._take(answer.size))
        if answer.code == Code.OUT_OF_RANGE:
            raise Gone(answer.body["first_held"], f"the journal of {self.welcome.node}")
        if answer.code != Code.OK:
            raise Refused(answer.code, answer.text)
        return answer.body, data

    def span(self, time_us: int | None = None) -> JournalSpan:
        """How far the journal reaches. The end is the last durable position."""
        body = self.ask("span", **({} if time_us is None else {"time_us": time_us}))
        return JournalSpan(
            self.welcome.node,
            body["epoch"],
            body["start"],
            body["end"],
            body.get("data_dir") or "",
            body.get("position", -1),
            body.get("dead_letter_topic") or "",
        )

    def read(self, position: int, stop: int) -> Iterator[tuple[int, memoryview]]:
        """Batches of `[position, stop)` as (position, bytes), prefetching the next answer. Raises `Gone`."""
        if position >= stop:
            return
        args = {"position": position, "stop": stop, "bytes_max": READ_BYTES}
        self._post("read", args)
        while True:
            body, data = self._answer()
            args["position"] = body["next"]
            is_last = body["next"] >= stop
            if not is_last:
                self._post("read", args)
            at = 0
            for place, length in body["pieces"]:
                yield place, data[at : at + length]
                at += length
            if is_last:
                return

    def records(self, position: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Records of `[position, stop)` as (position, frame). Raises `Gone`."""
        while position < stop:
            body = self.ask("records", position=position, stop=stop)
            yield from map(tuple, body["records"])
            position = body["next"]


def _failure(url: str, error: OSError) -> NotConnected:
    if isinstance(error, ssl.SSLError):
        return TlsFailed(url, failure_of_node(error))
    return NotConnected(url, error.strerror or str(error) or "it does not answer")


def _connect(url: str, timeout_s: float, tls: TlsFiles) -> socket.socket:
    scheme, host, port = parse_url(url)
    made = socket.create_connection((host, port), timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if scheme == "tls":
        context = client_context(tls, lambda name, why: InvalidConfig(name, "Spark", why))
        return context.wrap_socket(made, server_hostname=host)
    return made
