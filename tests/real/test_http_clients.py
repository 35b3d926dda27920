"""HTTP clients as people have them: curl with HTTP/2 on offer, and Java's HttpClient, which offers it by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.http.http_client import Web, payloads, web
from tests.gateway.http.programs import needs

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def node() -> Iterator[Web]:
    with web() as one:
        yield one


def stored(node: Web, topic: str) -> list[str]:
    with node.tunnel(topic, do_max_age="infinity") as tunnel:
        return payloads(tunnel.events(2)[1:])


@needs("curl")
@pytest.mark.parametrize("option", ["--http1.0", "--http1.1", "--http2"])
def test_what_curl_posts_is_kept_whatever_it_offers(node: Web, option: str) -> None:
    topic = f"/curl/{option.replace('.', '_').strip('-')}"
    form = f"kn_to={topic};kn_payload=hello;kn_response_format=simple"
    command = ["curl", "-s", option, "-d", form, f"{node.url}/kn"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=150).stdout
    assert "status: 200 Notified\n" in said
    assert stored(node, topic) == ["hello"]


@contextmanager
def java() -> Iterator[Any]:
    """A Java virtual machine, driven from here: its classes need no compiler."""
    py4j = pytest.importorskip("py4j.java_gateway")
    pyspark = pytest.importorskip("pyspark")
    (jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    gateway = py4j.JavaGateway.launch_gateway(jarpath=str(jar), die_on_exit=True)
    try:
        yield gateway.jvm.java.net
    finally:
        gateway.shutdown()


@needs("java", "default-jre-headless")
def test_what_javas_http_client_posts_is_kept_and_it_reads_a_stream(node: Web) -> None:
    with java() as net:
        client = net.http.HttpClient.newHttpClient()
        bodies = net.http.HttpRequest.BodyPublishers
        form = bodies.ofString("kn_to=/java/chat;kn_payload=hello;kn_response_format=simple")
        post = net.http.HttpRequest.newBuilder(net.URI.create(f"{node.url}/kn")).POST(form).build()
        answer = client.send(post, net.http.HttpResponse.BodyHandlers.ofString())
        assert "status: 200 Notified\n" in answer.body()
        assert stored(node, "/java/chat") == ["hello"]
        place = f"from={node.node.epoch}-0-0"
        stream = net.URI.create(f"{node.url}/sse?topic=java/*&{place}")
        reading = net.http.HttpRequest.newBuilder(stream).build()
        lines = client.send(reading, net.http.HttpResponse.BodyHandlers.ofLines()).body().iterator()
        assert any('"payload":"hello"' in lines.next() for _ in range(20))
