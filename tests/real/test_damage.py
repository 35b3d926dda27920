"""A journal that lost stored events: subscribers that were owed them get a report, and the ledger counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending

pytestmark = pytest.mark.real


def test_events_that_damage_took_are_lost_to_who_was_owed_them(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session:
            with session.subscribe("a", name="audit"):
                pass
            for _ in range(10):
                session.publish("a", b"x" * 1000)
        assert node.stop() == 0
        [log] = (node.data / "log").glob("*.log")
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
        node.start()
        with reknit.connect_sync(node.url) as session:
            [row] = session.ledger()
            assert row["balanced"]
            assert row["published"] == 10
            assert 0 < row["lost"] < 10
            lost = row["lost"]
            with session.subscribe("a", name="audit") as events:
                assert [next(events).seq for _ in range(10 - lost)] == list(range(1, 11 - lost))
                session.publish("a", b"y")
                assert next(events).payload == b"y"
    assert "durable bytes are lost" in node.output()
