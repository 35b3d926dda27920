"""A connection of the HTTP server, without a server."""

from __future__ import annotations

from typing import Any, cast

from reknit.gateway.http.connection import HttpConnection


class ClosedTransport:
    """As uvloop's after its client closed the connection."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")


def test_an_answer_to_a_client_that_is_gone_is_dropped() -> None:
    """A request that outlasted its connection, such as one that a stopping node ended, logged a traceback."""
    connection = HttpConnection.__new__(HttpConnection)
    connection._transport = cast(Any, ClosedTransport())
    connection.write(b"too late")
