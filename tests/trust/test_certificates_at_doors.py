"""A certificate and a Unix user stand for the same identity at every door."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.config import Config, HttpSettings, SecuritySettings, TransportSettings
from reknit.credentials import of_certificate
from reknit.errors import Refused
from reknit.gateway.amqp.security import AmqpSecurity
from reknit.node.admin.metrics import serve_metrics
from reknit.node.node import Node
from reknit.outcome import Code
from reknit.processes.process import free_port
from reknit.server import build_node
from reknit.transport.tls import server_tls
from tests.certificates import Certificates
from tests.node.fabric import config, run, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

LINES = ("uri:spiffe://plant/pump pump", "dns:client.example ann", f"unix:{os.getuid()} local")
RULES = ("pump publish plant/*", "ann subscribe **", "local publish **", "anonymous publish lobby")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make("node")
    made.make("one", names="URI:spiffe://plant/pump")
    made.make("two", names="DNS:client.example")
    made.make("other", names="DNS:other.example")
    return made


def files(made: Certificates, name: str) -> dict[str, str]:
    return {
        "tls_cert_file": str(made.pem(name)),
        "tls_key_file": str(made.key(name)),
        "tls_ca_file": str(made.pem("ca")),
    }


@asynccontextmanager
async def guarded(made: Certificates, *listen: str, is_required: bool = False) -> AsyncIterator[Node]:
    security = SecuritySettings(identities=LINES, identities_required=is_required, allow=RULES)
    there = replace(config(), security=security, transport=TransportSettings(**files(made, "node")))  # type: ignore[arg-type]
    there = replace(there, node=replace(there.node, listen=listen or ("tls://127.0.0.1:0",)))
    http = HttpSettings(listen="127.0.0.1:0", **files(made, "node"))  # type: ignore[arg-type]
    async with build_node(replace(there, http=http)) as node:
        yield node


def client(made: Certificates, name: str) -> Config:
    shown = (
        {"tls_client_cert_file": str(made.pem(name)), "tls_client_key_file": str(made.key(name))}
        if name
        else {}
    )
    return Config(transport=TransportSettings(tls_ca_file=str(made.pem("ca")), **shown))  # type: ignore[arg-type]


def test_tls(made: Certificates) -> None:
    async def test() -> None:
        async with guarded(made) as node:
            async with connect(node.urls[0], config=client(made, "one")) as pump:
                await pump.publish("plant/1", b"x")
            async with connect(node.urls[0], config=client(made, "other")) as other:
                await other.publish("lobby", b"x")
            with pytest.raises(Refused, match="anonymous may not publish on 'plant/1'"):
                async with connect(node.urls[0], config=client(made, "other")) as other:
                    await other.publish("plant/1", b"x")

    run(test)


def test_tls_where_an_identity_is_required(made: Certificates) -> None:
    async def test() -> None:
        async with guarded(made, is_required=True) as node:
            async with connect(node.urls[0], config=client(made, "one")) as pump:
                await pump.publish("plant/1", b"x")
            with pytest.raises(Refused) as refused:
                await connect(node.urls[0], config=client(made, "other")).open()
            assert refused.value.code == Code.UNAUTHENTICATED
            assert "no line of security.identities" in refused.value.text

    run(test)


def fetch(made: Certificates, url: str, name: str, body: bytes | None = None) -> int:
    context = ssl.create_default_context(cafile=made.pem("ca"))
    if name:
        context.load_cert_chain(made.pem(name), made.key(name))
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_https_and_metrics(made: Certificates) -> None:
    port = free_port()

    async def test() -> None:
        async with guarded(made) as node:
            url = f"{node.doors['http'].url}/kn"
            body = b"kn_to=/plant/1;kn_payload=x"
            for name, code in (("one", 200), ("two", 403), ("other", 403), ("", 403)):
                assert await asyncio.to_thread(fetch, made, url, name, body) == code
            tls = server_tls(node.config.http, lambda name, why: pytest.fail(why))
            server = serve_metrics(node.figures, f"127.0.0.1:{port}", node.gate, tls)
            try:
                for name, code in (("two", 200), ("one", 401), ("", 401)):
                    assert (
                        await asyncio.to_thread(fetch, made, f"https://127.0.0.1:{port}/metrics", name)
                        == code
                    )
            finally:
                server.shutdown()
                server.server_close()

    run(test)


def test_amqp(made: Certificates) -> None:
    async def test() -> None:
        async with guarded(made, is_required=True) as node:
            security = AmqpSecurity(node.config.amqp, node.gate, lambda name, why: pytest.fail(why))
            for uri, name in (("spiffe://plant/pump", "pump"), ("spiffe://other", "")):
                found = security._external(of_certificate({"subjectAltName": (("URI", uri),)}))
                assert (found.name if found else "") == name

    run(test)


def test_unix(made: Certificates, tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/socket"

    async def test() -> None:
        async with guarded(made, url) as node, connect(url) as local:
            assert node.urls == [url]
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o666
            await local.publish("anything", b"x")
            await until(
                lambda: [peer.identity for peer in node.peers if not peer.connection.is_inside] == ["local"]
            )
            [peer] = [peer for peer in node.peers if not peer.connection.is_inside]
            assert peer.address == "local"
        async with (
            build_node(replace(config(), node=replace(config().node, listen=(url,)))),
            connect(url) as own,
        ):
            await own.publish("anything", b"x")
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600

    run(test)
