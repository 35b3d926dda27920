"""Contexts are made from files; a file that can't be used is named with its setting and the reason."""

from __future__ import annotations

import os
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from reknit.config import Config, TransportSettings
from reknit.errors import InvalidConfig
from reknit.transport.tls import TlsFiles, client_context, client_files, client_tls, server_tls
from tests.certificates import Certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make("node")
    made.make("ann")
    (made.folder / "text.pem").write_text("no certificate")
    key, secret = made.key("node"), made.folder / "secret.key"
    locked = ["openssl", "pkcs8", "-topk8", "-in", str(key), "-passout", "pass:oak", "-out", str(secret)]
    subprocess.run(locked, check=True, capture_output=True)
    return made


def refuse(setting: str, why: str) -> InvalidConfig:
    return InvalidConfig(setting, "a test", why)


def test_without_a_certificate_a_listener_has_no_tls() -> None:
    assert server_tls(TransportSettings(), refuse) is None


@pytest.mark.parametrize(
    ("cert", "key", "ca", "setting", "why"),
    [
        ("gone.pem", "node.key", "", "tls_cert_file", "which can't be read: no such file or directory"),
        ("node.pem", "gone.key", "", "tls_key_file", "which can't be read: no such file or directory"),
        ("text.pem", "node.key", "", "tls_cert_file", "which holds no usable certificate in PEM form"),
        ("node.pem", "text.pem", "", "tls_key_file", "which holds no usable private key in PEM form"),
        ("node.pem", "ann.key", "", "tls_key_file", "which is not the key of the certificate in"),
        ("node.pem", "secret.key", "", "tls_key_file", "which is encrypted"),
        ("node.pem", "node.key", "gone.pem", "tls_ca_file", "which can't be read: no such file or directory"),
        ("node.pem", "node.key", "node.key", "tls_ca_file", "which holds no certificates in PEM form"),
    ],
)
def test_a_file_that_can_not_be_used_is_named_with_its_setting(
    made: Certificates, cert: str, key: str, ca: str, setting: str, why: str
) -> None:
    files = [str(made.folder / name) if name else "" for name in (cert, key, ca)]
    settings = TransportSettings(tls_cert_file=files[0], tls_key_file=files[1], tls_ca_file=files[2])
    blamed = {"tls_cert_file": files[0], "tls_key_file": files[1], "tls_ca_file": files[2]}[setting]
    with pytest.raises(InvalidConfig) as refused:
        server_tls(settings, refuse)
    assert refused.value.setting == setting
    assert refused.value.why.startswith(f"names {blamed}, {why}")
    with pytest.raises(InvalidConfig) as refused:
        client_context(TlsFiles(files[2], files[0], files[1]), refuse)
    assert refused.value.why.startswith(f"names {blamed}, {why}")


def test_every_context_needs_tls_1_2(made: Certificates) -> None:
    settings = TransportSettings(tls_cert_file=str(made.pem("node")), tls_key_file=str(made.key("node")))
    server = server_tls(settings, refuse)
    assert server is not None
    for context in (server.context, client_tls(Config())):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_client_verifies_certificate_and_name() -> None:
    context = client_tls(Config())
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_node_without_a_client_certificate_shows_its_own() -> None:
    own = TransportSettings(tls_cert_file="node.pem", tls_key_file="node.key")
    found = client_files(Config(transport=own))
    assert found == TlsFiles("", "node.pem", "node.key", ("tls_ca_file", "tls_cert_file", "tls_key_file"))
    both = replace(own, tls_client_cert_file="ann.pem", tls_client_key_file="ann.key")
    assert client_files(Config(transport=both)) == TlsFiles("", "ann.pem", "ann.key")


def test_a_context_is_made_anew_when_a_file_changes(made: Certificates, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(made.pem("ca").read_bytes())
    files = TlsFiles(str(ca))
    first = client_context(files, refuse)
    assert client_context(files, refuse) is first
    ca.write_bytes(made.pem("ca").read_bytes() * 2)
    second = client_context(files, refuse)
    assert second is not first
    os.truncate(ca, 0)
    assert client_context(files, refuse) is second, "a file that can't be used changes nothing"
