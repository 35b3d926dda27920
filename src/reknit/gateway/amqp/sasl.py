"""The server's side of SASL in AMQP 1.0: it offers mechanisms, and authenticates the client.

Bytes in, bytes out. The bytes after the exchange belong to AMQP, and are given back.

| state | input | next state |
| --- | --- | --- |
| HEADER | SASL header | INIT |
| HEADER | AMQP header, ANONYMOUS on offer | DONE |
| HEADER | other header | FAILED |
| INIT | init with credentials | DONE or FAILED |
| INIT | init of PLAIN without a response | RESPONSE |
| RESPONSE | response | DONE or FAILED |

Other frames raise `NotSasl`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from reknit.errors import RemoteError
from reknit.gateway.amqp.codec.encoding import (
    Described,
    MalformedValue,
    decode,
    encode,
    listed,
    symbols,
    ulong,
)
from reknit.trust.identities import NOBODY, Identity

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
HEADER_BYTES: Final = 8
TLS_RECORD: Final = b"\x16\x03"
"""TLS begins with a handshake record of version 3."""
FRAME_BYTES_MAX: Final = 4096
"""SASL frames are short. A client that sends a longer one is rejected."""
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
_OK, _AUTH = 0, 1


class SaslState(Enum):
    """The state of the exchange."""

    HEADER = "header"
    """Waiting for the protocol header."""
    INIT = "init"
    """Waiting for the client's choice of a mechanism."""
    RESPONSE = "response"
    """Waiting for the name and password of PLAIN."""
    DONE = "done"
    FAILED = "failed"


class NotSasl(RemoteError):
    """The client sent bytes that are not a SASL exchange.

    >>> print(NotSasl("a frame of 9999 bytes"))
    not a SASL exchange: a frame of 9999 bytes
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"not a SASL exchange: {self.what}"


class NotAmqp(RemoteError):
    """After the SASL exchange, or without one, the client did not send the header of AMQP.

    >>> print(NotAmqp(b"AMQP\\x03\\x01\\x00\\x00"))
    AMQP begins with another header than b'AMQP\\x03\\x01\\x00\\x00'
    """

    def __init__(self, header: bytes) -> None:
        super().__init__(header)
        self.header = header

    def __str__(self) -> str:
        return f"AMQP begins with another header than {self.header!r}"


class AmqpHeader:
    """The first bytes after SASL. Proton would take a SASL header for a second exchange, which its own code does.

    >>> header = AmqpHeader()
    >>> header.feed(b"AMQP"), header.is_complete, header.feed(AMQP_HEADER[4:] + b"more"), header.is_complete
    (b'', False, b'AMQP\\x00\\x01\\x00\\x00more', True)
    """

    def __init__(self) -> None:
        self._buffer = b""
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """The bytes of AMQP, header included, once it is complete. Raises `NotAmqp`."""
        self._buffer += data
        header = self._buffer[:HEADER_BYTES]
        if not AMQP_HEADER.startswith(header):
            raise NotAmqp(header)
        if len(header) < HEADER_BYTES:
            return b""
        self.is_complete = True
        return self._buffer


def _other_protocol(header: bytes) -> str:
    """What a client speaks that does not speak AMQP."""
    if header[:2] == TLS_RECORD:
        return (
            "the client speaks TLS, and this port does not; set amqp.tls_cert_file, or connect with amqp://"
        )
    return f"the client does not speak AMQP: it began with {header!r}"


def frame(performative: int, fields: Sequence[bytes]) -> bytes:
    """A SASL frame.

    >>> frame(0x44, [b"P\\0"])
    b'\\x00\\x00\\x00\\x10\\x02\\x01\\x00\\x00\\x00SD\\xc0\\x03\\x01P\\x00'
    """
    body = b"\x00" + ulong(performative) + listed(list(fields))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


Plain = Callable[[str, str], Identity | None]
"""The identity behind a name and a password; None if it is not right."""


class SaslServer:
    """One exchange. `mechanisms` are on offer; `external` is the identity in the client's certificate, if it has one.

    >>> from reknit.gateway.amqp.codec.encoding import Symbol
    >>> sasl = SaslServer(["PLAIN"], lambda name, password: Identity(name) if password == "s3cret" else None)
    >>> said = sasl.feed(SASL_HEADER + frame(0x41, [encode(Symbol("PLAIN")), encode(b"\\0ann\\0s3cret")]) + AMQP_HEADER)
    >>> sasl.state, sasl.identity.name, sasl.rest
    (<SaslState.DONE: 'done'>, 'ann', b'AMQP\\x00\\x01\\x00\\x00')
    """

    def __init__(self, mechanisms: Sequence[str], plain: Plain, external: Identity | None = None) -> None:
        self._mechanisms = [one for one in mechanisms if one != "EXTERNAL" or external is not None]
        self._plain = plain
        self._external = external
        self._buffer = b""
        self.state = SaslState.HEADER
        self.identity = NOBODY
        self.mechanism = ""
        self.rest = b""
        """The bytes after the exchange."""

    def feed(self, data: bytes) -> bytes:
        """Process bytes from the client. Returns the bytes to answer. Raises `NotSasl`."""
        self._buffer += data
        answer = b""
        if self.state is SaslState.HEADER and len(self._buffer) >= HEADER_BYTES:
            answer += self._header()
        while self.state in (SaslState.INIT, SaslState.RESPONSE) and (found := self._frame()) is not None:
            answer += self._take(found)
        if self.state is SaslState.DONE:
            self.rest, self._buffer = self._buffer, b""
        return answer

    def _header(self) -> bytes:
        header = self._buffer[:HEADER_BYTES]
        if header == AMQP_HEADER and "ANONYMOUS" in self._mechanisms:
            self.state = SaslState.DONE  # a client without SASL is anonymous
            return b""
        if header != SASL_HEADER:
            if not header.startswith(b"AMQP"):
                raise NotSasl(_other_protocol(header))
            self.state = SaslState.FAILED
            return SASL_HEADER  # "the protocol header that is acceptable", before closing
        self._buffer = self._buffer[HEADER_BYTES:]
        self.state = SaslState.INIT
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
        if self.state is SaslState.INIT and found.descriptor == _INIT and fields:
            self.mechanism = str(fields[0])
            return self._choose(fields[1] if len(fields) > 1 else None)
        if self.state is SaslState.RESPONSE and found.descriptor == _RESPONSE and fields:
            return self._finish(self._user(fields[0]))
        raise NotSasl(f"performative {found.descriptor!r} is not expected here")

    def _choose(self, response: object) -> bytes:
        if self.mechanism not in self._mechanisms:
            return self._finish(None)
        if self.mechanism == "ANONYMOUS":
            return self._finish(NOBODY)
        if self.mechanism == "EXTERNAL":
            return self._finish(self._external)
        if response is None:
            self.state = SaslState.RESPONSE
            return frame(_CHALLENGE, [encode(b"")])
        return self._finish(self._user(response))

    def _user(self, response: object) -> Identity | None:
        """The user, if the password is right. Nobody acts for somebody else (RFC 4616: the authorization identity)."""
        parts = response.split(b"\0") if isinstance(response, bytes) else []
        if len(parts) != 3 or parts[0] not in (b"", parts[1]):
            return None
        return self._plain(parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace"))

    def _finish(self, identity: Identity | None) -> bytes:
        self.identity = identity or NOBODY
        self.state = SaslState.DONE if identity is not None else SaslState.FAILED
        return frame(_OUTCOME, [bytes((0x50, _OK if identity is not None else _AUTH))])
