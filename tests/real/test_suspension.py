"""A node that was suspended (a paused virtual machine, a closed laptop) continues as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending, free_port

pytestmark = pytest.mark.real

PEER_TIMEOUT_S = 1.0
SETTINGS = (f"transport.peer_timeout_s={PEER_TIMEOUT_S}", "transport.heartbeat_s=0.3")


def post(port: int, text: str) -> int:
    data = f"do_method=notify;kn_to=/what/chat;kn_payload={text}".encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/kn", data, timeout=60) as answer:
        return int(answer.status)


def suspend(node: NodeProcess) -> None:
    os.kill(node.pid, signal.SIGSTOP)
    time.sleep(3 * PEER_TIMEOUT_S)  # longer than any peer may be silent
    os.kill(node.pid, signal.SIGCONT)


def test_gateways_and_clients_continue_after_a_suspension(tmp_path: Path) -> None:
    http = free_port()
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    node = NodeProcess(tmp_path, "--http", f"127.0.0.1:{http}", *options)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session, session.subscribe("what/**", name="audit") as events:
            assert post(http, "before") == 200
            assert next(events).payload == b"before"
            suspend(node)
            assert post(http, "after") == 200
            assert next(events).payload == b"after"
            session.publish("what/else", b"x")
            assert next(events).payload == b"x"
        assert "this process was suspended" in node.output()
