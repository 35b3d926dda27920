"""The server's side of SASL, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.gateway.amqp.codec.encoding import Symbol, encode
from reknit.gateway.amqp.sasl import AMQP_HEADER, SASL_HEADER, NotSasl, SaslServer, SaslState, frame
from reknit.trust.identities import Identity
from reknit.trust.rules import ANONYMOUS

INIT, RESPONSE = 0x41, 0x43


def plain(name: str, password: str) -> Identity | None:
    return Identity("ann") if (name, password) == ("ann", "s3cret") else None


def init(mechanism: str, response: bytes | None = None) -> bytes:
    return frame(INIT, [encode(Symbol(mechanism)), encode(response)])


@pytest.mark.parametrize(
    ("response", "user"),
    [
        (b"\0ann\0s3cret", "ann"),
        (b"ann\0ann\0s3cret", "ann"),
        (b"bob\0ann\0s3cret", ""),
        (b"\0ann\0guess", ""),
        (b"\0bob\0", ""),
        (b"\0\0", ""),
        (b"ann s3cret", ""),
    ],
)
def test_plain(response: bytes, user: str) -> None:
    sasl = SaslServer(["PLAIN"], plain)
    sasl.feed(SASL_HEADER + init("PLAIN", response))
    assert sasl.identity.name == (user or ANONYMOUS)
    assert sasl.state is (SaslState.DONE if user else SaslState.FAILED)


def test_plain_may_come_after_a_challenge() -> None:
    sasl = SaslServer(["PLAIN"], plain)
    sasl.feed(SASL_HEADER + init("PLAIN"))
    assert sasl.state is SaslState.RESPONSE
    sasl.feed(frame(RESPONSE, [encode(b"\0ann\0s3cret")]))
    assert sasl.identity.name == "ann"


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    sasl = SaslServer(["PLAIN", "EXTERNAL"], plain)
    offered = sasl.feed(SASL_HEADER)
    assert b"EXTERNAL" not in offered, "there is no certificate"
    sasl.feed(init("EXTERNAL"))
    assert sasl.state is SaslState.FAILED


def test_external_is_the_name_in_the_certificate() -> None:
    sasl = SaslServer(["EXTERNAL"], plain, Identity("pump-7", "certificate", "pump-7"))
    sasl.feed(SASL_HEADER + init("EXTERNAL"))
    assert sasl.identity.name == "pump-7"


def test_what_follows_belongs_to_amqp() -> None:
    whole = SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + b"more"
    for step in (1, 3, len(whole)):
        sasl = SaslServer(["ANONYMOUS"], plain)
        rest = b""
        for at in range(0, len(whole), step):
            part = whole[at : at + step]
            if sasl.state is SaslState.DONE:
                rest += part
            else:
                sasl.feed(part)
                rest += sasl.rest
        assert rest == AMQP_HEADER + b"more"


def test_without_sasl_a_client_is_anonymous_or_not_let_in() -> None:
    sasl = SaslServer(["ANONYMOUS"], plain)
    assert sasl.feed(AMQP_HEADER) == b""
    assert (sasl.state, sasl.identity.name, sasl.rest) == (SaslState.DONE, "anonymous", AMQP_HEADER)
    strict = SaslServer(["PLAIN"], plain)
    assert strict.feed(AMQP_HEADER) == SASL_HEADER
    assert strict.state is SaslState.FAILED


@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_any_bytes_let_nobody_in_by_plain(parts: list[bytes], with_header: bool) -> None:
    sasl = SaslServer(["PLAIN"], plain)
    try:
        for part in [SASL_HEADER, *parts] if with_header else parts:
            sasl.feed(part)
    except NotSasl:
        pass
    assert sasl.state is not SaslState.DONE


def test_client_that_speaks_tls_on_a_plain_port_is_named() -> None:
    with pytest.raises(NotSasl, match=r"the client speaks TLS.*tls_cert_file"):
        SaslServer(["ANONYMOUS"], plain).feed(bytes.fromhex("1603010200010001fc0303"))


def test_client_of_another_protocol_is_told_apart_from_a_failed_login() -> None:
    with pytest.raises(NotSasl, match="does not speak AMQP: it began with b'GET / HT'"):
        SaslServer(["ANONYMOUS"], plain).feed(b"GET / HTTP/1.1\r\n")
