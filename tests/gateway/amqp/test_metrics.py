"""A node's report on its AMQP clients: in its status, on the command line and to Prometheus."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending, free_port
from tests.gateway.amqp.clients import WAIT_S, Client, start

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

TOPICS = '[[topics]]\npattern = "orders/**"\ndistribution = "balanced"\n'


def cli(*words: str) -> str:
    command = [sys.executable, "-m", "reknit", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_connections_links_deliveries_unsettled_and_credit_are_told(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    settings = tmp_path / "node.toml"
    settings.write_text(TOPICS)
    options = ("--amqp", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}", "--config", str(settings))
    node = NodeProcess(tmp_path, "--journal", "memory", *options)
    with ending(node):
        start(node, port)
        with Client(f"amqp://127.0.0.1:{port}") as one, Client(f"amqp://127.0.0.1:{port}") as other:
            receiver = one.receiver("orders/new", "hold", credit=10)
            sender = other.sender("orders/new")
            sent = sender.send_many([b"x"] * 5)
            receiver.wait(5)
            receiver.say(0, "accept")
            assert sent[0].outcome == "accepted"
            told = {
                "connections": 2,
                "links_in": 1,
                "links_out": 1,
                "deliveries_in": 5,
                "deliveries_out": 5,
                "unsettled_in": 4,
                "unsettled_out": 4,
                "credit_out": 5,
            }
            with reknit.connect_sync(node.url) as session:
                figures: dict[str, Any] = session.status()["amqp"]
            assert {name: figures[name] for name in told} == told
            assert figures["credit_in"] == sender.credit
            assert json.loads(cli("status", "--json", "--node", node.url))["amqp"] == figures
            text = cli("status", "--node", node.url)
            assert "2 connections, messages in: 5 over 1 links, 4 unsettled" in " ".join(text.split())
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=150) as answer:
                lines = answer.read().decode().splitlines()
            assert 'reknit_amqp{what="unsettled_out"} 4.0' in lines
            assert 'reknit_amqp_deliveries_total{direction="in"} 5.0' in lines
        with reknit.connect_sync(node.url) as session:
            deadline = time.monotonic() + WAIT_S
            while session.status()["amqp"]["connections"]:
                assert time.monotonic() < deadline, "connections that are closed are counted"
            assert session.status()["amqp"]["links_out"] == 0
