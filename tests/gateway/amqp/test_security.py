"""The identity of AMQP clients, and their permissions."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reknit.config import SecuritySettings
from reknit.errors import InvalidConfig
from tests.gateway.amqp.clients import Client, broker, config, url_of

proton = pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
needs_tls = pytest.mark.skipif(not proton.SSL.present(), reason="python-qpid-proton was built without TLS")


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users"
    path.write_text("# who and what\nann s3cret\nbob hunter2\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and a client named pump-7, made by openssl."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        try:
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)
        except FileNotFoundError:
            pytest.skip("openssl is not installed")

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("localhost", "pump-7"):
        openssl(*new[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
                "-CAcreateserial", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    return folder


def tls(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "tls_cert_file": str(folder / "localhost.pem"),
        "tls_key_file": str(folder / "localhost.key"),
        "tls_ca_file": str(folder / "ca.pem"),
        **more,
    }


def domain(folder: Path, name: str = "") -> Any:
    """A client's TLS context; with a name, it has that certificate."""
    made = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(str(folder / "ca.pem"))
    made.set_peer_authentication(proton.SSLDomain.VERIFY_PEER)
    if name:
        made.set_credentials(str(folder / f"{name}.pem"), str(folder / f"{name}.key"), None)
    return made


def test_plain_lets_in_who_knows_the_password(users: str) -> None:
    with broker(config(mechanisms=("PLAIN",), users_file=users, plain_needs_tls=False)) as node:
        options = {
            "sasl_enabled": True,
            "allowed_mechs": "PLAIN",
            "allow_insecure_mechs": True,
            "user": "ann",
        }
        with Client(url_of(node), password="s3cret", **options) as client:
            assert client.sender("plant/temp").send(b"x").outcome == "accepted"
        with Client(url_of(node), password="guess", **options) as client:
            assert not client.is_open
            assert client.errors[0][0] == "amqp:unauthorized-access"


def test_without_anonymous_nobody_gets_in_unnamed(users: str) -> None:
    with broker(config(mechanisms=("PLAIN",), users_file=users, plain_needs_tls=False)) as node:
        for options in ({"sasl_enabled": False}, {"sasl_enabled": True, "allowed_mechs": "ANONYMOUS"}):
            with Client(url_of(node), **options) as client:
                assert not client.is_open


def test_plain_is_not_offered_where_others_can_listen(users: str) -> None:
    with broker(config(mechanisms=("PLAIN",), users_file=users)) as node:
        options = {"sasl_enabled": True, "allow_insecure_mechs": True, "user": "ann", "password": "s3cret"}
        with Client(url_of(node), **options) as client:
            assert not client.is_open


def test_anonymous_works_with_and_without_sasl() -> None:
    with broker() as node:
        for options in ({"sasl_enabled": False}, {"sasl_enabled": True, "allowed_mechs": "ANONYMOUS"}):
            with Client(url_of(node), **options) as client:
                assert client.sender("plant/temp").send(b"x").outcome == "accepted"


@needs_tls
def test_plain_over_tls(certificates: Path, users: str) -> None:
    with broker(config(**tls(certificates, mechanisms=("PLAIN",), users_file=users))) as node:
        assert url_of(node).startswith("amqps://")
        with Client(url_of(node), ssl_domain=domain(certificates), user="ann", password="s3cret") as client:
            receiver = client.receiver("plant/temp")
            client.sender("plant/temp").send(b"x" * 100_000)
            assert receiver.wait(1) == [b"x" * 100_000]


@needs_tls
def test_external_takes_the_name_from_the_certificate(certificates: Path) -> None:
    allow = ("pump-7 publish plant/**", "pump-7 subscribe plant/**")
    with broker(config(**tls(certificates, mechanisms=("EXTERNAL",), allow=allow))) as node:
        with Client(url_of(node), ssl_domain=domain(certificates, "pump-7")) as client:
            assert client.sender("plant/temp").send(b"x").outcome == "accepted"
            client.sender("office/temp")
            client.wait(lambda: client.errors, "the refusal")
            assert client.errors[0] == ("amqp:unauthorized-access", "pump-7 may not publish on office/temp")
        with Client(url_of(node), ssl_domain=domain(certificates)) as client:
            assert not client.is_open


def test_nobody_sends_below_reknit() -> None:
    with broker(config()) as node, Client(url_of(node), sasl_enabled=False) as client:
        client.sender("reknit/audit")
        client.wait(lambda: client.errors, "the refusal")
        assert client.errors.pop() == (
            "amqp:unauthorized-access",
            "anonymous may not publish on reknit/audit",
        )
        relay = client.sender(None)
        assert relay.send(proton.Message(body=b"forged", address="reknit/audit")).outcome == "rejected"
        assert not node.journal.sources("reknit/audit")


def test_rules_say_who_may_read_and_write(users: str) -> None:
    allow = ("ann publish plant/*", "* subscribe plant/**")
    settings = config(mechanisms=("PLAIN", "ANONYMOUS"), users_file=users, plain_needs_tls=False, allow=allow)
    with broker(settings) as node, Client(url_of(node), sasl_enabled=False) as nobody:
        receiver = nobody.receiver("plant/**")
        nobody.sender("plant/temp")
        nobody.wait(lambda: nobody.errors, "the refusal")
        assert nobody.errors.pop() == ("amqp:unauthorized-access", "anonymous may not publish on plant/temp")
        nobody.receiver("**", name="all")
        nobody.wait(lambda: nobody.errors, "the refusal")
        assert nobody.errors.pop() == ("amqp:unauthorized-access", "anonymous may not read **")
        options = {"allow_insecure_mechs": True, "user": "ann", "password": "s3cret"}
        with Client(url_of(node), **options) as ann:
            ann.sender("plant/temp").send(b"x")
            relay = ann.sender(None)
            sent = relay.send(proton.Message(body=b"y", address="office/temp"))
            assert sent.outcome == "rejected"
            assert sent.condition.name == "amqp:unauthorized-access"
        assert receiver.wait(1) == [b"x"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"allow": ("ann writes plant/*",)}, "security.allow"),
        ({"users_file": "/nowhere/users"}, "amqp.users_file"),
        ({"tls_cert_file": "/nowhere/cert", "tls_key_file": "/nowhere/key"}, "amqp.tls_cert_file"),
        ({"listen": "192.0.2.1:5672"}, "amqp.listen"),
    ],
)
def test_a_setting_that_can_not_be_used_is_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidConfig) as refused, broker(config(**settings)):
        pass
    assert refused.value.setting == name


def test_an_address_for_replies_stays_open_while_its_owner_is_there(users: str) -> None:
    settings = config(allow=("anonymous subscribe nothing", "anonymous publish nothing"))
    with broker(settings) as node, Client(url_of(node)) as client, Client(url_of(node)) as service:
        replies = client.receiver(None, dynamic=True)
        for number in range(3):
            sender = service.sender(replies.address, name=f"s{number}")
            assert sender.send(f"{number}").outcome == "accepted"
            sender.close()
        assert replies.wait(3) == ["0", "1", "2"]
        replies.close()
        service.sender(replies.address, name="late")
        service.wait(lambda: service.errors, "the refusal")
        assert service.errors[0][0] == "amqp:unauthorized-access"


def test_a_sender_over_its_quota_gets_its_credit_later() -> None:
    security = SecuritySettings(quotas=("anonymous events_per_s=20",))
    with (
        broker(replace(config(), security=security)) as node,
        Client(url_of(node), sasl_enabled=False) as client,
    ):
        sender = client.sender("plant/temp")
        outcomes = [sender.send(b"x").outcome for _ in range(60)]
        assert outcomes == ["accepted"] * 60
        assert node.figures.status()["quotas"]["anonymous"]["waits"] > 0
