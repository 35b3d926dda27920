"""A handshake that fails tells both sides why, on asyncio's event loop and on uvloop's."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reknit.client.event_loops import loop_factory
from reknit.config import Config, TransportSettings
from reknit.connection.node_connection import NodeConnection
from reknit.errors import InvalidConfig, NotConnected, ReknitError, TlsFailed
from reknit.transport.servers import open_server
from reknit.transport.tls import ServerTls, server_tls
from reknit.transport.tls_server import LOG_S, HandshakeLog
from tests.certificates import Certificates
from tests.node.node_processes import until

LOOPS: list[Any] = [asyncio.new_event_loop, loop_factory()]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.authority("other")
    for name in ("node", "ann"):
        made.make(name)
    made.make("elsewhere", names="DNS:elsewhere")
    made.make("old", days=-1)
    made.make("mallory", by="other")
    return made


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(program: Coroutine[Any, Any, None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(WAIT_S):
                await program

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return run


def refuse(setting: str, why: str) -> InvalidConfig:
    return InvalidConfig(setting, "a test", why)


def serving(made: Certificates, name: str, **more: Any) -> ServerTls:
    settings = TransportSettings(
        tls_cert_file=str(made.pem(name)),
        tls_key_file=str(made.key(name)),
        tls_ca_file=str(made.pem("ca")),
        **more,
    )
    tls = server_tls(settings, refuse)
    assert tls is not None
    return tls


def trusting(made: Certificates, ca: str = "ca", client: str = "") -> Config:
    settings = TransportSettings(tls_ca_file=str(made.pem(ca)))
    if client:
        cert, key = str(made.pem(client)), str(made.key(client))
        settings = replace(settings, tls_client_cert_file=cert, tls_client_key_file=key)
    return Config(transport=settings)


class User:
    """The user of a connection that never comes about."""

    def connected(self, welcome: object) -> None: ...
    def disconnected(self) -> None: ...
    def received(self, items: list[Any]) -> None: ...


async def failure(url: str, config: Config) -> ReknitError:
    """Why a connection to a node can't be opened."""
    with pytest.raises(ReknitError) as failed:
        await NodeConnection(url, "test", User(), config).open(0)
    return failed.value


@pytest.mark.parametrize(
    ("name", "more", "client", "told", "logged"),
    [
        (
            "node",
            {},
            {"ca": "other"},
            "its certificate is not from a trusted authority (self-signed certificate in certificate chain); "
            "name the authority in transport.tls_ca_file",
            "it does not trust the authority of this node's certificate",
        ),
        (
            "elsewhere",
            {},
            {},
            "its certificate is for another name (IP address mismatch, certificate is not valid for '127.0.0.1'); "
            "connect by a name that the certificate has",
            "it rejects this node's certificate: perhaps that has no name or address under which it connects",
        ),
        (
            "old",
            {},
            {},
            "its certificate has expired; renew it on the node",
            "this node's certificate has expired; renew it",
        ),
        (
            "node",
            {},
            {"client": "mallory"},
            "it does not trust the authority of this program's certificate; "
            "use one that an authority in its tls_ca_file has signed",
            "its certificate is not from an authority in tls_ca_file",
        ),
        (
            "node",
            {},
            {"client": "old"},
            "this program's certificate has expired; renew it",
            "its certificate has expired",
        ),
        (
            "node",
            {"tls_needs_client_cert": True},
            {},
            "it requires a client certificate; set transport.tls_client_cert_file and transport.tls_client_key_file",
            "it shows no certificate, and tls_needs_client_cert requires one",
        ),
    ],
    ids=["unknown authority", "other name", "expired", "unknown client", "expired client", "no client"],
)
def test_a_failure_is_told_on_both_sides(
    made: Certificates,
    run: Callable[[Coroutine[Any, Any, None]], None],
    caplog: pytest.LogCaptureFixture,
    name: str,
    more: dict[str, bool],
    client: dict[str, str],
    told: str,
    logged: str,
) -> None:
    async def program() -> None:
        server, url = await open_server(
            asyncio.Protocol, "tls", "127.0.0.1", 0, tls=serving(made, name, **more)
        )
        error = await failure(url, trusting(made, **client))
        assert isinstance(error, TlsFailed), error
        assert error.why == told
        assert str(error) == f"no TLS connection to {url}: {told}"
        await until(lambda: bool(caplog.messages))
        server.close()
        assert caplog.messages == [f"{url}: no TLS connection with a client at 127.0.0.1: {logged}"]

    with caplog.at_level(logging.WARNING, "reknit.transport"):
        run(program())


def test_tls_and_plain_connections_that_meet_say_so(
    made: Certificates,
    run: Callable[[Coroutine[Any, Any, None]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(asyncio.Transport, transport).write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def program() -> None:
        server, url = await open_server(asyncio.Protocol, "tls", "127.0.0.1", 0, tls=serving(made, "node"))
        error = await failure(url.replace("tls:", "tcp:"), Config())
        assert isinstance(error, NotConnected), error
        assert error.why.endswith("connect to tls://")
        server.close()
        plain, url = await open_server(Plain, "tcp", "127.0.0.1", 0)
        error = await failure(url.replace("tcp:", "tls:"), trusting(made))
        assert isinstance(error, TlsFailed), error
        assert error.why == "it does not speak TLS; connect to tcp:// instead"
        plain.close()

    with caplog.at_level(logging.WARNING, "reknit.transport"):
        run(program())
    assert [text for text in caplog.messages if text.endswith("127.0.0.1: it does not speak TLS")]


def test_new_connections_get_the_files_as_they_are_after_a_reload(
    made: Certificates, run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    """Also an authority that was dropped is one no more, and connections that are open go on."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(made.pem("ca").read_bytes())

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    client = ssl.create_default_context(cafile=str(made.pem("ca")))
    client.load_cert_chain(made.pem("ann"), made.key("ann"))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x")
        return await reader.read(1)

    async def program() -> None:
        settings = TransportSettings(
            tls_cert_file=str(made.pem("node")),
            tls_key_file=str(made.key("node")),
            tls_ca_file=str(ca),
            tls_needs_client_cert=True,
        )
        tls = ServerTls(settings, refuse)
        server, url = await open_server(Echo, "tls", "127.0.0.1", 0, tls=tls)
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        assert await echo(reader, writer) == b"x"

        ca.write_text("no certificate")
        with pytest.raises(InvalidConfig, match="tls_ca_file"):
            tls.reload()
        again = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        assert await echo(*again) == b"x", "what was read before stays in use"

        ca.write_bytes(made.pem("other").read_bytes())
        tls.reload()
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            await echo(late_reader, late_writer)
        assert await echo(reader, writer) == b"x", "the first connection goes on"
        for one in (writer, again[1], late_writer):
            one.transport.abort()
        server.close()

    run(program())


def test_the_same_failure_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    seen = HandshakeLog("tls://here:1", lambda: now)
    with caplog.at_level(logging.WARNING, "reknit.transport"):
        for _ in range(5):
            seen.failed(("10.0.0.1", 5), TimeoutError())
        seen.failed(("10.0.0.2", 5), TimeoutError())
        now += LOG_S
        seen.failed(("10.0.0.1", 6), TimeoutError())
    why = "it did not complete the TLS handshake in time"
    assert caplog.messages == [
        f"tls://here:1: no TLS connection with a client at 10.0.0.1: {why}",
        f"tls://here:1: no TLS connection with a client at 10.0.0.2: {why}",
        f"tls://here:1: no TLS connection with a client at 10.0.0.1: {why} (4 more times since the last report)",
    ]


def test_a_probe_of_the_port_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reknit.transport"):
        HandshakeLog("tls://here:1", lambda: 0.0).failed(("10.0.0.1", 5), ConnectionResetError())
    assert caplog.messages == []
