"""Nodes and commands as processes, with real certificates: `[transport]` is what all of them go by."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reknit.client import tunnel
from reknit.client.session import connect
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config, load
from reknit.errors import LocalError
from reknit.processes.process import NodeProcess, ending, free_port, tied
from tests.certificates import Certificates
from tests.node.node_processes import run, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    for name in ("node", "north", "ann", "root"):
        made.make(name)
    return made


def tls_node(folder: Path, *options: str, name: str = "node") -> NodeProcess:
    """A node that listens with TLS alone."""
    node = NodeProcess(folder, "--journal", "memory", "--log", "info", *options, name=name)
    plain, node.url = node.url, node.url.replace("tcp:", "tls:")
    node.command[node.command.index(plain)] = node.url
    return node


@pytest.fixture
def node(tmp_path: Path, made: Certificates) -> Iterator[NodeProcess]:
    """A node that knows clients by their certificates, and has rules for them."""
    (tmp_path / "rules.toml").write_text(
        '[security]\nallow = ["ann publish **", "north admin", "north subscribe **", "north publish **", "root admin"]\n'
    )
    node = tls_node(tmp_path, *made.settings("node"), "--config", "rules.toml")
    with ending(node):
        node.start()
        yield node


def command(*args: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with these variables."""
    return subprocess.run(
        tied([sys.executable, "-m", "reknit", *args]),
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=120,
    )


def config(made: Certificates, client: str = "") -> Config:
    """The configuration of a program that trusts the authority, and shows this certificate."""
    files = (
        {"tls_client_cert_file": made.pem(client), "tls_client_key_file": made.key(client)} if client else {}
    )
    settings = {"tls_ca_file": made.pem("ca"), **files}
    return load(overrides={f"transport.{name}": str(file) for name, file in settings.items()})


def linked(url: str, environ: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """What `reknit link list` shows."""
    done = command("link", "list", "--json", "--node", url, environ=environ or {})
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


async def wait_for_link(url: str, field: str, value: str) -> None:
    async def look() -> bool:
        rows = await asyncio.to_thread(linked, url)
        return any(value in row[field] for row in rows)

    await until(look)


async def next_payload(events: Subscription) -> bytes:
    """The next event's, other than those of the nodes themselves."""
    while True:
        event = await anext(aiter(events))
        if not event.topic.startswith("reknit/"):
            return bytes(event.payload)


def test_a_command_trusts_and_shows_what_the_configuration_names(
    node: NodeProcess, made: Certificates
) -> None:
    done = command("pub", "a/b", "hello", "--node", node.url, environ=made.environ(client="ann"))
    assert done.returncode == 0, done.stderr
    done = command("pub", "a/b", "hello", "--node", node.url, environ=made.environ())
    assert done.returncode == 1, "nobody in particular may not publish"
    assert "anonymous may not publish" in done.stderr
    done = command("status", "--json", "--node", node.url, environ=made.environ(client="root"))
    assert json.loads(done.stdout)["node"] == "node"


def test_links_relays_and_routes_trust_and_show_what_the_configuration_names(
    node: NodeProcess, made: Certificates, tmp_path: Path
) -> None:
    """The other node shows its own certificate, as it has none for connecting."""
    options = [*made.settings("north"), "--link", node.url]
    north = NodeProcess(tmp_path, "--journal", "memory", *options, name="north")
    relay = NodeProcess(
        tmp_path, "--journal", "memory", *made.settings(client="north"), "--relay", node.url, name="relay"
    )

    async def test() -> None:
        with ExitStack() as stack:
            for other in (north, relay):
                stack.enter_context(ending(other))
                other.start()
            await wait_for_link(north.url, "state", "linked")
            async with (
                connect(north.url) as at_north,
                connect(relay.url) as at_relay,
                connect(node.url, config=config(made, "ann")) as ann,
                at_north.subscribe("**") as over_the_link,
                at_relay.subscribe("a/**", history=True) as over_the_relay,
            ):
                await ann.publish("a/b", b"hello")
                assert await next_payload(over_the_relay) == b"hello"
                assert await next_payload(over_the_link) == b"hello"
                await at_relay.add_route("here", node.url, "b/**")
                await at_relay.publish("b/1", b"by route")
                assert await next_payload(over_the_link) == b"by route"

    run(test, 200)


def test_a_handshake_that_fails_says_why_on_both_sides(
    made: Certificates, node: NodeProcess, tmp_path: Path
) -> None:
    """In the command's error, in the list of links, and in the logs of both nodes."""
    north = NodeProcess(tmp_path, "--journal", "memory", "--link", node.url, name="north")
    why = "its certificate is not from a trusted authority"

    async def test() -> None:
        with ending(north):
            north.start()
            await wait_for_link(north.url, "problem", why)
            await until(lambda: f"the link to {node.url} waits: {why}" in north.output())

    run(test, 200)
    done = command("pub", "a/b", "hello", "--node", node.url, environ={})
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no TLS connection to {node.url}: {why}"), done.stderr
    text = "no TLS connection with a client at 127.0.0.1: it does not trust the authority of this node's certificate"
    assert text in node.output()


def test_a_missing_certificate_is_named_with_its_setting(tmp_path: Path) -> None:
    node = tls_node(
        tmp_path, "--set", "transport.tls_cert_file=gone.pem", "--set", "transport.tls_key_file=gone.key"
    )
    with pytest.raises(LocalError, match="does not listen"):
        node.start()
    assert node.output().strip() == (
        "error: setting transport.tls_cert_file (from flag) names gone.pem, which can't be read: "
        "no such file or directory"
    )


def served(port: int) -> str:
    """The certificate that a client is shown."""
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_a_node_takes_new_certificates_while_it_runs(made: Certificates, tmp_path: Path) -> None:
    """On SIGHUP and by itself; connections that are open go on, and a file that can't be used changes nothing."""
    made.make("live")
    node = tls_node(tmp_path, *made.settings("live"))

    async def test() -> None:
        with ending(node):
            node.start()
            async with connect(node.url, config=config(made)) as session:
                await session.publish("a", b"1")
                first = await asyncio.to_thread(served, node.port)
                os.kill(node.pid, signal.SIGHUP)
                await until(lambda: "the certificate for tls:// was reloaded from" in node.output())
                assert await asyncio.to_thread(served, node.port) == first
                made.make("live")
                await until(lambda: served(node.port) != first)
                now = served(node.port)
                made.pem("live").write_text("no certificate")
                os.kill(node.pid, signal.SIGHUP)
                await until(lambda: "the certificate for tls:// stays as it was" in node.output())
                assert served(node.port) == now
                await session.publish("a", b"2")
            assert "broke" not in node.output()
            assert node.stop() == 0

    run(test, 200)


def test_http_and_metrics_speak_tls(made: Certificates, tmp_path: Path) -> None:
    http, metrics = free_port(), free_port()
    options = [*made.settings("node", section="http"), "--http", f"127.0.0.1:{http}"]
    node = NodeProcess(tmp_path, "--journal", "memory", *options, "--metrics", f"127.0.0.1:{metrics}")
    trust = ssl.create_default_context(cafile=str(made.pem("ca")))

    def get(port: int, path: str, context: ssl.SSLContext = trust) -> bytes:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=context, timeout=60) as answer:
            return bytes(answer.read(200))

    async def test() -> None:
        with ending(node):
            node.start()
            await until(lambda: "listens on" in node.output())
            assert f"https://127.0.0.1:{http}" in node.output()
            url, trusted = f"https://127.0.0.1:{http}", config(made)
            async with tunnel.open(url, "/what/chat", config=trusted, wait_s=60) as events:
                await tunnel.notify(url, "/what/chat", "hello", config=trusted)
                assert (await anext(aiter(events))).payload == b"hello"
            assert b"HELP" in await asyncio.to_thread(get, metrics, "/metrics")
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                await asyncio.to_thread(get, metrics, "/metrics", ssl.create_default_context())
            assert "Traceback" not in node.output()

    run(test, 200)


def test_the_data_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    """Also one that was there before, with permissions for others."""
    node = NodeProcess(tmp_path)
    node.data.mkdir(mode=0o755)
    with ending(node):
        node.start()
        assert command("pub", "a/b", "hello", "--node", node.url, environ={}).returncode == 0
        assert node.stop() == 0
    assert node.data.stat().st_mode & 0o777 == 0o700
    modes = {str(path): path.stat().st_mode & 0o077 for path in node.data.rglob("*")}
    assert modes
    assert not any(modes.values()), modes
