"""`reknit trail` finds events by the ids that applications gave them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending

pytestmark = pytest.mark.real


def trail(node: NodeProcess, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "reknit", "trail", *words]
    environment = {**os.environ, "REKNIT_NODE": node.url, "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def test_events_are_found_by_message_id_and_by_correlation(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--journal", "memory")
    with ending(node):
        node.start()
        with (
            reknit.connect_sync(node.url, wait_s=60) as session,
            session.subscribe("jobs/**", name="audit") as events,
        ):
            for number in range(3):
                names = {"message-id": f"m{number}", "correlation-id": "order 7"}
                session.publish("jobs/a", b"x", headers=names)
            session.publish("jobs/b", b"x", headers={"correlation-id": "order 8"})
            for _ in zip(range(4), events, strict=False):
                pass
        found: list[dict[str, Any]] = json.loads(trail(node, "--message-id", "m1", "--json"))
        assert [(row["topic"], row["event"].partition(":")[2]) for row in found] == [("jobs/a", "2")]
        assert found[0]["subscribers"] == [{"subscriber": "audit", "outcome": "accepted"}]
        assert len(json.loads(trail(node, "--correlation", "order 7", "--json"))) == 3
        assert len(json.loads(trail(node, "--correlation", "order 7", "--topic", "jobs/b", "--json"))) == 0
        assert len(json.loads(trail(node, "--correlation", "order 7", "--since", "1h", "--json"))) == 3
        text = trail(node, "--correlation", "order 8")
        assert text.startswith("jobs/b  ")
        assert "  audit: accepted" in text
        assert "no event" in trail(node, "--message-id", "m9")
        assert "name an event" in trail(node, code=1)
