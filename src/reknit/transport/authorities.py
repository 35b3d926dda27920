"""Which authority vouches for a client's certificate, so that a connection can end when that authority is dropped."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Iterator
from typing import Any, Final

from reknit.credentials import Credentials, of_certificate
from reknit.transport.tls_handshake import TlsContext

UNKNOWN: Final = "?"
"""A client that resumed an earlier TLS session: OpenSSL no longer knows the chain of its certificate."""
_VERSION_TAG: Final = 0xA0
_SUBJECT: Final = 4
"""The place of the subject in a certificate (RFC 5280): after serial number, algorithm, issuer and validity."""


def credentials_of(transport: asyncio.BaseTransport) -> Credentials:
    """What a client has proven with a certificate, and the authority that vouches for it."""
    certificate = transport.get_extra_info("peercert")
    context = transport.get_extra_info("sslcontext")
    if not certificate or not isinstance(context, TlsContext) or not context.ca_file:
        return of_certificate(certificate)
    chain = _verified_chain(transport.get_extra_info("ssl_object"))
    vouching = authority_id(chain[-1]) if chain else UNKNOWN
    return of_certificate(certificate, f"{context.ca_file}#{vouching}")


def authorities_of(context: ssl.SSLContext) -> frozenset[str]:
    """The authorities that a context trusts."""
    return frozenset(authority_id(one) for one in context.get_ca_certs(binary_form=True))


def authority_id(certificate: bytes) -> str:
    """Tells one authority from another by its name and its key, which stay when its certificate is renewed."""
    content = next(_elements(certificate))[1]
    fields = [whole for tag, _, whole in _elements(next(_elements(content))[1]) if tag != _VERSION_TAG]
    return hashlib.sha256(fields[_SUBJECT] + fields[_SUBJECT + 1]).hexdigest()[:32]


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements in DER, which OpenSSL has checked: each with its tag, its content and all of its bytes."""
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, start = int.from_bytes(data[start : start + count], "big"), start + count
        yield tag, data[start : start + size], data[at : start + size]
        at = start + size


def _verified_chain(connection: Any) -> list[bytes]:
    """The certificates from the client's to the authority's; empty if OpenSSL does not know them."""
    if hasattr(connection, "get_verified_chain"):  # from Python 3.13 on
        return list(connection.get_verified_chain())
    private: Any = ssl
    found = connection._sslobj.get_verified_chain() or ()
    return [one.public_bytes(private._ssl.ENCODING_DER) for one in found]
