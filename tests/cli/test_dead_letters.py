"""`reknit dead-letters` and `reknit topic` against a real node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("node"), "--journal", "memory")
    with ending(process):
        process.start()
        yield process


def reknit_(node: NodeProcess, *args: str, code: int = 0, stdin: bytes = b"") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "reknit", *args],
        input=stdin,
        capture_output=True,
        env={**os.environ, "REKNIT_NODE": node.url, "COLUMNS": "120"},
        timeout=60,
    )
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return (done.stdout if code == 0 else done.stderr).decode()


def rows(node: NodeProcess, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(reknit_(node, "dead-letters", "list", "--json", *args))
    return found


def die(node: NodeProcess, topic: str, count: int) -> None:
    """Publish events and reject them."""
    with (
        reknit.connect_sync(node.url, wait_s=20.0) as session,
        session.subscribe(topic, name=f"strict {topic}", auto_accept=False) as events,
    ):
        session.publish_many(topic, [b"%d" % number for number in range(count)])
        for number, event in enumerate(events, 1):
            event.reject(reknit.Code.DATA_LOSS, "torn")
            if number == count:
                break


def test_dead_letters_are_filtered_redriven_and_dropped(node: NodeProcess) -> None:
    die(node, "a/1", 30)
    die(node, "b/1", 3)
    assert len(rows(node)) == 20
    assert len(rows(node, "--limit", "1000")) == 33
    lines = reknit_(node, "dead-letters", "list", "--limit", "0", "--json").splitlines()
    assert [json.loads(line)["no"] for line in lines] == list(range(1, 34))
    assert len(rows(node, "--topic", "b/**", "--code", "data_loss", "--since", "1h")) == 3
    assert rows(node, "--reason", "expired") == []
    assert rows(node, "--until", "2020-01-01") == []
    [one] = rows(node, "--topic", "b/1", "--limit", "1")
    assert (one["tries"][0]["outcome"], one["attempts"], one["priority"]) == ("rejected", 1, "CS1")
    assert "torn" in reknit_(node, "dead-letters", "show", str(one["no"]))

    dry = reknit_(node, "dead-letters", "redrive", "--topic", "a/**", "--dry-run")
    assert dry == "a/1: 30\n30 dead letters would be redriven\n"
    done = json.loads(reknit_(node, "dead-letters", "redrive", "--topic", "a/**", "--rate", "0", "--json"))
    assert (done["count"], done["topics"]) == (30, {"a/1": 30})
    assert reknit_(node, "dead-letters", "redrive", "--topic", "a/**") == "0 dead letters redriven\n"

    assert "Drop 3 dead letters" in subprocess_asks(node)
    assert len(rows(node)) == 3
    assert reknit_(node, "dead-letters", "drop", "--yes") == "3 dead letters dropped\n"
    assert reknit_(node, "dead-letters", "list") == "no dead letters\n"


def subprocess_asks(node: NodeProcess) -> str:
    """The question of `drop`, which is answered with no."""
    done = subprocess.run(
        [sys.executable, "-m", "reknit", "dead-letters", "drop"],
        input=b"n\n",
        capture_output=True,
        env={**os.environ, "REKNIT_NODE": node.url},
        timeout=60,
    )
    assert done.returncode == 1
    return done.stdout.decode()


def test_invalid_options_are_refused_in_one_line(node: NodeProcess) -> None:
    cases = {
        ("list", "--reason", "late"): "invalid reason 'late': use one of expired",
        ("list", "--code", "LATE"): "invalid code 'LATE': use a google.rpc code",
        ("list", "--since", "yesterday"): "invalid time 'yesterday'",
        ("redrive", "--rate", "fast"): "invalid rate 'fast'",
        ("show", "7"): "there is no dead letter 7",
    }
    for args, words in cases.items():
        told = reknit_(node, "dead-letters", *args, code=1)
        assert words in told
        assert told.count("\n") == 1


def test_topic_is_paused_and_resumed(node: NodeProcess) -> None:
    assert reknit_(node, "topic", "paused") == "nothing is paused\n"
    assert reknit_(node, "topic", "pause", "a/**") == "a/** is paused\n"
    assert json.loads(reknit_(node, "topic", "paused", "--json")) == ["a/**"]
    assert reknit_(node, "topic", "resume", "a/**") == "a/** is resumed\n"
    assert "is not paused" in reknit_(node, "topic", "resume", "a/**", code=1)
    assert "error:" in reknit_(node, "topic", "pause", "a//b", code=1)
