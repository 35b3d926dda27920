"""A plain socket to a node, for saying what no client would say."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from reknit.errors import MalformedFrame
from reknit.wire.codec import Decoder, Item, encode
from reknit.wire.messages import VERSION, Bye, Hello, Message, Welcome

HELLO = encode(Hello(VERSION, "raw"))
PATIENCE_S = 10.0


class RawConnection:
    """Sends any bytes; reads what the node says until it hangs up."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._decoder = Decoder()
        self.items: list[Item] = []
        self.is_closed = False

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_closed = True

    def say(self, *messages: Message) -> None:
        self.send(b"".join(map(encode, messages)))

    def half_close(self) -> None:
        """Nothing more comes from here."""
        with suppress(OSError):  # the node may have closed the connection
            self._socket.shutdown(socket.SHUT_WR)

    def read(self, patience_s: float = PATIENCE_S) -> None:
        """Read until the node hangs up, or says nothing for so long."""
        deadline = time.monotonic() + patience_s
        while not self.is_closed and time.monotonic() < deadline:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_closed = True
            try:
                self.items += self._decoder.feed(data)
            except MalformedFrame as error:
                raise AssertionError(f"the node itself sent what is no frame: {error}") from error

    def read_until(self, kind: type[Message], patience_s: float = PATIENCE_S) -> Item:
        """The first item of a kind."""
        deadline = time.monotonic() + patience_s
        while True:
            for item in self.items:
                if isinstance(item, kind):
                    return item
            assert not self.is_closed, self.items
            assert time.monotonic() < deadline, self.items
            self.read(0.05)

    @property
    def bye(self) -> Bye | None:
        return next((item for item in self.items if isinstance(item, Bye)), None)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def raw(port: int, hello: bool = True) -> Iterator[RawConnection]:
    """A connection, introduced if wanted."""
    connection = RawConnection(port)
    try:
        if hello:
            connection.send(HELLO)
            connection.read_until(Welcome)
        yield connection
    finally:
        connection.close()
