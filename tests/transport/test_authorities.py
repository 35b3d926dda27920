"""An authority is known by its name and key: a renewed certificate is the same one, and another key is not."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from reknit.config import TransportSettings
from reknit.errors import InvalidConfig
from reknit.transport.authorities import UNKNOWN, authority_id
from reknit.transport.tls import ServerTls, server_tls
from tests.certificates import Certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def id_of(made: Certificates, name: str = "ca") -> str:
    return authority_id(ssl.PEM_cert_to_DER_cert(made.pem(name).read_text()))


def test_a_renewed_certificate_is_of_the_same_authority(made: Certificates) -> None:
    before, certificate = id_of(made), made.pem("ca").read_bytes()
    made.renew("ca")
    assert made.pem("ca").read_bytes() != certificate
    assert id_of(made) == before


def test_another_key_of_the_same_name_is_another_authority(made: Certificates) -> None:
    before = id_of(made)
    made.authority("ca")
    assert id_of(made) != before


def test_another_name_with_the_same_key_is_another_authority(made: Certificates) -> None:
    made.key("other").write_bytes(made.key("ca").read_bytes())
    made.renew("other")
    assert id_of(made, "other") != id_of(made)


def listener(made: Certificates) -> tuple[ServerTls, list[str]]:
    """The TLS of a listener, and what it says when it drops an authority."""
    made.make("node")
    made.pem("trusted").write_bytes(made.pem("ca").read_bytes())
    settings = TransportSettings(
        tls_cert_file=str(made.pem("node")),
        tls_key_file=str(made.key("node")),
        tls_ca_file=str(made.pem("trusted")),
    )
    tls = server_tls(settings, lambda name, why: InvalidConfig(name, "test", why))
    assert tls is not None
    dropped: list[str] = []
    tls.watch(lambda: dropped.append("dropped"))
    return tls, dropped


def test_a_listener_says_when_it_drops_an_authority_and_not_when_it_adds_one(made: Certificates) -> None:
    tls, dropped = listener(made)
    made.authority("partner")
    both = made.pem("ca").read_text() + made.pem("partner").read_text()
    first, partner = id_of(made), id_of(made, "partner")
    made.pem("trusted").write_text(both)
    tls.reload()
    assert (tls.trusts(first), tls.trusts(partner), tls.trusts(UNKNOWN), dropped) == (True, True, True, [])
    made.pem("trusted").write_bytes(made.pem("partner").read_bytes())
    tls.reload()
    assert (tls.trusts(first), tls.trusts(partner), tls.trusts(UNKNOWN)) == (False, True, False)
    assert dropped == ["dropped"]


def test_a_file_that_is_not_valid_drops_nobody(made: Certificates) -> None:
    tls, dropped = listener(made)
    made.pem("trusted").write_text("nonsense")
    with pytest.raises(InvalidConfig):
        tls.reload()
    assert (tls.trusts(id_of(made)), dropped) == (True, [])
