"""nginx and Caddy in front of a node, set up as the documentation says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from reknit.processes.process import free_port, start_tied
from tests.gateway.http.http_client import Stream
from tests.gateway.http.node_process import Living
from tests.gateway.http.programs import needs
from tests.real.browser import browser_page, changes, chromium, post, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.real

CLIENT = ("127.0.0.2", 0)
"""Where the clients are: an address that the node does not trust."""
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "proxies.md"
NGINX = """pid {folder}/pid; error_log {folder}/errors; daemon off; worker_processes 1; {user}
events {{ worker_connections 512; }}
http {{ access_log off; client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
{server}
}}
"""
BOTH = [
    pytest.param("nginx", marks=needs("nginx", "nginx-light")),
    pytest.param("caddy", marks=needs("caddy")),
]


def documented(language: str) -> str:
    """The configuration on the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def nginx(folder: Path, node: Living, port: int) -> list[str]:
    return start_nginx(
        folder,
        re.sub(r" *ssl_certificate.*;\n", "", documented("nginx")).replace(
            "443 ssl http2", f"127.0.0.1:{port}"
        ),
        node,
    )


def nginx_tls(folder: Path, node: Living, port: int) -> list[str]:
    """As it is on the page, with a certificate of its own."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    making = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    making += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(making, check=True, capture_output=True)
    text = documented("nginx").replace("/etc/ssl/events.example.key", str(key))
    text = text.replace("/etc/ssl/events.example.pem", str(certificate))
    return start_nginx(folder, text.replace("listen 443", f"listen 127.0.0.1:{port}"), node)


def start_nginx(folder: Path, text: str, node: Living) -> list[str]:
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{node.port}")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, server=text, user=user))
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", f"{folder}/errors"]


def caddy(folder: Path, node: Living, port: int) -> list[str]:
    text = documented("caddy").replace("127.0.0.1:8080", f"127.0.0.1:{node.port}")
    text = text.replace("events.example", f"http://127.0.0.1:{port}")
    (folder / "Caddyfile").write_text(f"{{\n  admin off\n  auto_https off\n}}\n{text}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@contextmanager
def behind(kind: str, folder: Path) -> Iterator[tuple[Living, str, int]]:
    """A node and its proxy: the node, and the proxy's address and port."""
    folder.chmod(0o755)
    port = free_port()
    most = 20 if kind == "nginx-tls" else 3
    settings = ("http.trusted_proxies=127.0.0.1", f"http.tunnels_per_address_max={most}")
    with Living(folder / "data", *settings) as node:
        command = {"nginx": nginx, "nginx-tls": nginx_tls, "caddy": caddy}[kind](folder, node, port)
        with (folder / "log").open("wb") as log:
            process = start_tied(command, stdout=log, stderr=subprocess.STDOUT)
            try:
                wait_until_open(process, port, folder / "log")
                scheme = "https" if kind == "nginx-tls" else "http"
                yield node, f"{scheme}://127.0.0.1:{port}", port
            finally:
                process.terminate()
                process.wait(150)


def wait_until_open(process: subprocess.Popen[str], port: int, log: Path) -> None:
    while process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 150.0):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


def streamed(port: int, path: str, *headers: str) -> Stream:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]
    return Stream(socket.create_connection(("127.0.0.1", port), 150.0, CLIENT), "\r\n".join(lines).encode())


@pytest.mark.parametrize("kind", BOTH)
def test_every_kind_of_stream_passes_a_proxy_at_once(kind: str, tmp_path: Path) -> None:
    with (
        behind(kind, tmp_path) as (_, url, port),
        streamed(port, "/kn/what/chat?kn_response_format=simple") as tunnel,
        streamed(port, "/sse?topic=what/**") as sse,
        connect(
            f"ws://127.0.0.1:{port}/ws?topic=what/**", origin=Origin(url), source_address=CLIENT
        ) as websocket,
    ):
        tunnel.until(b"200 Watching topic")
        sse.until(b"event: opened")
        assert '"opened"' in str(websocket.recv(150))
        form = b"kn_to=/what/chat;kn_payload=through"
        with urlopen(Request(f"{url}/kn", form, {"Origin": url}), timeout=150) as answer:
            assert answer.status == 200
        tunnel.until(b"through")
        sse.until(b"through")
        assert "through" in str(websocket.recv(150))
        with streamed(port, "/sse?topic=a", "X-Forwarded-For: 198.51.100.7") as refused:
            # what a client says of itself is not believed: the proxy adds the address that it sees
            assert b"127.0.0.2 has 3 tunnels" in refused.until(b"event: closing")


@pytest.mark.parametrize("kind", BOTH)
def test_a_page_behind_a_proxy_resumes_after_the_node_was_away(
    kind: str, tmp_path: Path, browser: Browser
) -> None:
    with behind(kind, tmp_path) as (node, url, _), browser_page(browser, url, "#via=eventsource") as page:
        wait_for(page, "states.includes('live')")
        post(node, "1")
        wait_for(page, "events.length == 1")
        node.kill()
        wait_for(page, "one.why.includes('HTTP 502')")
        node.start()
        post(node, "2")
        wait_for(page, "events.length == 2")
        assert page.evaluate("events") == ["1", "2"]
        assert changes(page) == ["live", "recovering", "recovered"]


@needs("nginx", "nginx-light")
@needs("openssl")
def test_with_http_2_in_front_a_browser_has_no_limit_of_six_connections(
    tmp_path: Path, browser: Browser
) -> None:
    with behind("nginx-tls", tmp_path) as (node, url, _):
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(f"{url}/reknit.js")
        page.evaluate("""() => {
          window.got = [];
          window.states = [];
          for (let number = 0; number < 12; number++) {
            const source = new EventSource("/sse?topic=what/chat");
            source.addEventListener("opened", () => states.push(number));
            source.onmessage = ({ data }) => got.push(JSON.parse(data).payload);
          }
        }""")
        wait_for(page, "states.length == 12")
        post(node, "through")
        wait_for(page, "got.length == 12")
        assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
        context.close()
