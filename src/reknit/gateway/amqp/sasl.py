"""The server's side of SASL in AMQP 1.0: which mechanisms there are, and who the client is.

Bytes in, bytes out. What follows the exchange belongs to AMQP proper, and is given back.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from reknit.errors import RemoteError
from reknit.gateway.amqp.encoding import (
    Described,
    MalformedValue,
    decode,
    encode,
    listed,
    symbols,
    ulong,
)

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
HEADER_BYTES: Final = 8
FRAME_BYTES_MAX: Final = 4096
"""A SASL frame is short; who sends a longer one is not let in."""
ANONYMOUS: Final = "anonymous"
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
_OK, _AUTH = 0, 1


class State(Enum):
    """Where the exchange stands."""

    HEADER = "header"
    """Waiting for the protocol header."""
    INIT = "init"
    """Waiting for the client's choice."""
    RESPONSE = "response"
    """Waiting for the name and password of PLAIN."""
    DONE = "done"
    FAILED = "failed"


class NotSasl(RemoteError):
    """What the client sent is no SASL exchange.

    >>> print(NotSasl("a frame of 9999 bytes"))
    no SASL exchange: a frame of 9999 bytes
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"no SASL exchange: {self.what}"


def frame(performative: int, fields: Sequence[bytes]) -> bytes:
    """A SASL frame.

    >>> frame(0x44, [b"P\\0"])
    b'\\x00\\x00\\x00\\x10\\x02\\x01\\x00\\x00\\x00SD\\xc0\\x03\\x01P\\x00'
    """
    body = b"\x00" + ulong(performative) + listed(list(fields))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class SaslServer:
    """One exchange. `mechanisms` are those on offer; `subject` is the name in the client's certificate, if it has one.

    >>> from reknit.gateway.amqp.encoding import Symbol
    >>> sasl = SaslServer(["PLAIN"], {"ann": "s3cret"})
    >>> said = sasl.feed(SASL_HEADER + frame(0x41, [encode(Symbol("PLAIN")), encode(b"\\0ann\\0s3cret")]) + AMQP_HEADER)
    >>> sasl.state, sasl.user, sasl.rest
    (<State.DONE: 'done'>, 'ann', b'AMQP\\x00\\x01\\x00\\x00')
    """

    def __init__(self, mechanisms: Sequence[str], users: Mapping[str, str], subject: str = "") -> None:
        self._mechanisms = [one for one in mechanisms if one != "EXTERNAL" or subject]
        self._users = users
        self._subject = subject
        self._buffer = b""
        self.state = State.HEADER
        self.user = ""
        self.mechanism = ""
        self.rest = b""
        """What came after the exchange."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes; gives what to answer. Raises `NotSasl`."""
        self._buffer += data
        answer = b""
        if self.state is State.HEADER and len(self._buffer) >= HEADER_BYTES:
            answer += self._header()
        while self.state in (State.INIT, State.RESPONSE) and (found := self._frame()) is not None:
            answer += self._take(found)
        if self.state is State.DONE:
            self.rest, self._buffer = self._buffer, b""
        return answer

    def _header(self) -> bytes:
        header = self._buffer[:HEADER_BYTES]
        if header == AMQP_HEADER and "ANONYMOUS" in self._mechanisms:
            self.state, self.user = State.DONE, ANONYMOUS  # without SASL a client is nobody in particular
            return b""
        if header != SASL_HEADER:
            self.state = State.FAILED
            return SASL_HEADER  # "the protocol header that is acceptable", before closing
        self._buffer = self._buffer[HEADER_BYTES:]
        self.state = State.INIT
        return SASL_HEADER + frame(_MECHANISMS, [symbols(self._mechanisms)])

    def _frame(self) -> Described | None:
        if len(self._buffer) < 8:
            return None
        size, offset, kind = int.from_bytes(self._buffer[:4], "big"), self._buffer[4] * 4, self._buffer[5]
        if not 8 <= offset <= size <= FRAME_BYTES_MAX or kind != 1:
            raise NotSasl(f"a frame of {size} bytes and type {kind}")
        if len(self._buffer) < size:
            return None
        body, self._buffer = self._buffer[offset:size], self._buffer[size:]
        try:
            found, _ = decode(body)
        except MalformedValue as error:
            raise NotSasl(str(error)) from None
        if not isinstance(found, Described) or not isinstance(found.value, list):
            raise NotSasl("a frame without a performative")
        return found

    def _take(self, found: Described) -> bytes:
        fields = found.value
        if self.state is State.INIT and found.descriptor == _INIT and fields:
            self.mechanism = str(fields[0])
            return self._choose(fields[1] if len(fields) > 1 else None)
        if self.state is State.RESPONSE and found.descriptor == _RESPONSE and fields:
            return self._finish(self._plain(fields[0]))
        raise NotSasl(f"performative {found.descriptor!r} has no place here")

    def _choose(self, response: object) -> bytes:
        if self.mechanism not in self._mechanisms:
            return self._finish("")
        if self.mechanism == "ANONYMOUS":
            return self._finish(ANONYMOUS)
        if self.mechanism == "EXTERNAL":
            return self._finish(self._subject)
        if response is None:
            self.state = State.RESPONSE
            return frame(_CHALLENGE, [encode(b"")])
        return self._finish(self._plain(response))

    def _plain(self, response: object) -> str:
        """The name, if the password is right."""
        parts = response.split(b"\0") if isinstance(response, bytes) else []
        if len(parts) != 3:
            return ""
        name = parts[1].decode("utf-8", "replace")
        known = self._users.get(name)
        is_right = hmac.compare_digest(parts[2], (known or "").encode())
        return name if is_right and known else ""

    def _finish(self, user: str) -> bytes:
        self.user = user
        self.state = State.DONE if user else State.FAILED
        return frame(_OUTCOME, [bytes((0x50, _OK if user else _AUTH))])
