"""A node with a limit of open files: tunnels are refused with a reason, and everything else continues."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import reknit
from reknit.gateway.http.server import HttpServer
from reknit.transport import file_limits as files
from tests.gateway.http.http_client import Stream, Web, config, web
from tests.gateway.http.node_process import Living

FILES, RESERVED = 200, 40
TRIES = 2 * FILES
WAIT_S = 150.0


class Far(Web):
    """The pages of a node in another process."""

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    limits = f"ulimit -S -n {FILES // 2}; ulimit -H -n {FILES}"
    with Living(tmp_path, f"http.files_reserved={RESERVED}", limits=limits) as node:
        yield node


def _tunnels(node: Web, stack: ExitStack) -> tuple[list[Stream], Stream]:
    """As many tunnels as the node allows, and the first that it refused."""
    opened: list[Stream] = []
    for _ in range(TRIES):
        stream = stack.enter_context(node.tunnel())
        if stream.head.code != 200:
            return opened, stream
        stream.events(1)
        opened.append(stream)
    raise AssertionError(f"none of {TRIES} tunnels was refused")


def test_a_tunnel_past_the_limit_is_503_in_words_and_the_others_go_on(living: Living) -> None:
    node = Far(living.port)
    with ExitStack() as stack:
        opened, refused = _tunnels(node, stack)
        assert FILES // 2 < len(opened) < FILES - RESERVED
        assert (refused.head.code, refused.head.headers["retry-after"]) == (503, "10")
        assert b"may have 200 files open (ulimit -n)" in refused.raw
        with node.stream("/sse?topic=what/chat") as stream:
            assert stream.head.code == 200
            assert b"event: closing" in stream.until(b"ulimit -n")
        assert node.post("/what/chat", "still here").code == 200
        for one in opened:
            assert one.events(2)[1]["kn_payload"] == b"still here"
        opened.pop().close()
        assert _granted(node, stack)


def _granted(node: Web, stack: ExitStack) -> bool:
    """Whether there is room for a tunnel, now or soon: the node may not know yet that others are gone."""
    return any(stack.enter_context(node.tunnel()).head.code == 200 for _ in range(TRIES))


def test_connections_that_say_nothing_leave_the_node_its_files(living: Living) -> None:
    node = Far(living.port)
    with ExitStack() as stack:
        stream = stack.enter_context(node.tunnel())
        stream.events(1)
        silent = [stack.enter_context(node.connect()) for _ in range(TRIES)]
        assert select.select(silent, [], [], WAIT_S)[0], "none was refused"
        assert any(_is_refused(sock) for sock in silent)
        with reknit.connect_sync(living.greeting.split()[3].rstrip(",")) as session:
            status = session.status()
            session.publish("what/chat", b"still here")
        assert stream.events(2)[1]["kn_payload"] == b"still here"
        assert status["http"]["files_max"] == FILES
        assert status["http"]["tunnels_max"] == FILES - RESERVED
        for sock in silent:
            sock.close()
        assert _granted(node, stack)


def _is_refused(sock: socket.socket) -> bool:
    """Whether the node has closed it, with an answer or, beyond a further limit, without one."""
    sock.settimeout(0)
    try:
        data = sock.recv(65536)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return not data or data.startswith(b"HTTP/1.1 503 ")


def test_the_start_says_how_many_tunnels_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reknit.gateway.http.room.files_max", lambda: 1_024)
    with web(config(tunnels_max=5_000)) as node:
        assert node.http.status()["tunnels_max"] == 1_024 - 64
    (record,) = [one for one in caplog.records if one.name == "reknit.http"]
    assert "room for 960 tunnels, not for the 5,000 of http.tunnels_max" in record.getMessage()


def test_nothing_is_said_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reknit.gateway.http.room.files_max", lambda: files.UNLIMITED)
    with web(config()) as node:
        assert isinstance(node.http, HttpServer)
        assert node.http.room.tunnels_max == node.http.settings.tunnels_max
    assert not [one for one in caplog.records if one.name == "reknit.http"]
