"""What a person or a script at a terminal relies on: exit codes, plain output, JSON, errors that say what to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import reknit
from reknit.cli.main import app
from reknit.cli.options import complete_settings, complete_subscribers, complete_topics
from reknit.processes.process import NodeProcess, ending
from tests.client.node_thread import serving

pytestmark = pytest.mark.real

NOBODY = "tcp://127.0.0.1:1"
LONG = "plant/" + "/".join(f"segment-{number}" for number in range(12))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A node with odd topics, and a subscriber that is away."""
    with serving() as node, reknit.connect_sync(node.urls[0]) as session:
        with session.subscribe("plant/**", name="audit"):
            pass
        session.publish("a b/ü", b"x")
        session.publish_many(LONG, [b"x"] * 12_345)
        session.publish_many("other/topic", [b"x"] * 100)
        yield node.urls[0]


def shell(*args: str, url: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, whose output is a pipe."""
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "reknit", *args],
        capture_output=True,
        text=True,
        env={**known, **({"REKNIT_NODE": url} if url else {}), **environ},
        timeout=120,
    )


def test_a_terminal_that_knows_only_ascii_gets_escapes(url: str) -> None:
    done = shell("status", url=url, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "a b/\\xfc" in done.stdout


def test_a_pipe_gets_whole_lines_and_a_narrow_terminal_whole_numbers(url: str) -> None:
    piped = shell("ledger", url=url).stdout
    assert any(LONG in line and "12,345" in line for line in piped.splitlines())
    narrow = shell("ledger", url=url, COLUMNS="40").stdout
    assert "12,345" in narrow


def test_no_color_means_no_codes() -> None:
    program = (
        "import sys; sys.stdout.isatty = lambda: True\n"
        "from reknit.cli.tables import console, table\n"
        "made = table(('name',), ()); made.add_row('[dim]x[/]'); console().print(made)"
    )
    for no_color, has_codes in (("1", False), ("", True)):
        environ = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color", "FORCE_COLOR": ""}
        environ.pop("FORCE_COLOR")
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120)
        assert ("\x1b" in done.stdout) == has_codes, done


def test_the_status_counts_what_a_subscriber_is_owed(url: str) -> None:
    [row] = json.loads(shell("status", "--json", url=url).stdout)["subscribers"]
    assert (row["name"], row["owed"]) == ("audit", 12_345)
    assert "12,345" in shell("status", url=url).stdout


def test_the_ledger_exits_with_2_if_it_could_not_ask() -> None:
    done = shell("ledger", url=NOBODY)
    assert (done.returncode, done.stderr.startswith("error: ")) == (2, True)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("link", "add", "nonsense"), "'tcp://nonsense' is not a valid address"),
        (("sub", "a/***", "--count", "1"), "pattern 'a/***' has a stray wildcard in '***'"),
        (
            ("group", "members", "nobody", "--address", "127.0.0.1:1"),
            "group.address (from the call) can't be used: 127.0.0.1:1",
        ),
        (
            ("config", "check", "--set", "security.tokens_file=/not/there"),
            "security.tokens_file: No such file",
        ),
    ],
)
def test_errors_say_what_is_wrong(url: str, args: tuple[str, ...], text: str) -> None:
    done = shell(*args, url=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_set_takes_lists_as_toml() -> None:
    done = shell("config", "check", "--json", "--set", "security.allow=['ann publish a/**', 'bob admin']")
    [row] = json.loads(done.stdout)
    assert row["value"] == '["ann publish a/**", "bob admin"]'


def test_changes_print_json(url: str) -> None:
    runner = CliRunner(env={"REKNIT_NODE": url})

    def said(*args: str) -> Any:
        result = runner.invoke(app, [*args, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert said("pub", "json/a", "1") == {"topic": "json/a", "stored": 1}
    [link] = said("link", "add", NOBODY)
    assert link["url"] == NOBODY
    assert said("link", "remove", NOBODY) == []
    assert json.loads(runner.invoke(app, ["config", "path", "--json"]).stdout)["exists"] is False
    [route] = said("route", "add", "here", NOBODY, "--pattern", "nothing/**")
    assert route["pattern"] == "nothing/**"
    assert said("route", "delete", "here", NOBODY, "--pattern", "nothing/**") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("args", [("pub", "a/b"), ("sub", "a/**")])
def test_a_signal_ends_a_command_that_waits(
    url: str, args: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    read, write = os.pipe()  # nothing comes through it
    environ = {**os.environ, "REKNIT_NODE": url}
    command = [sys.executable, "-m", "reknit", *args]
    with reknit.connect_sync(url) as session:
        before = len(session.status()["peers"])
        with subprocess.Popen(command, stdin=read, stderr=subprocess.PIPE, text=True, env=environ) as process:
            try:
                while len(session.status()["peers"]) <= before:
                    assert process.poll() is None
                    time.sleep(0.05)
                process.send_signal(number)
                process.communicate(timeout=60)
            finally:
                process.kill()
    os.close(read)
    os.close(write)
    assert process.returncode == code


def test_names_are_completed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKNIT_NODE", url)
    assert complete_topics("plant/seg") == [LONG]
    assert complete_subscribers("a") == ["audit"]
    assert "limits.scheduled_max=" in complete_settings("limits.sch")
    monkeypatch.setenv("REKNIT_NODE", NOBODY)
    assert complete_topics("") == []


def test_the_doctor_looks_at_everything(tmp_path: Path) -> None:
    data = f"node.data_dir={tmp_path}"
    done = shell("doctor", "--json", "--set", data)
    found = {row["what"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert {"settings", "open files", "clock", "disk", "disk sync", "node.listen", "extra spark"} <= set(
        found
    )
    assert "ms (median of" in found["disk sync"]["text"]
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
    broken = shell("doctor", "--set", data, "--set", "security.tokens_file=/not/there")
    assert broken.returncode == 1
    assert "security.tokens_file" in broken.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_the_log_has_dates_or_is_json(as_json: bool) -> None:
    program = (
        "import logging; from reknit.cli.output import log_to_stderr\n"
        f"log_to_stderr('info', with_time=True, as_json={as_json})\n"
        "logging.getLogger('reknit.x').info('stored %d\\n', 7)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    if as_json:
        entry = json.loads(done.stderr)
        at = datetime.fromisoformat(entry.pop("time"))
        assert entry == {"level": "info", "logger": "reknit.x", "message": "stored 7\n"}
    else:
        when, _, rest = done.stderr.partition(" info ")
        at = datetime.fromisoformat(when).astimezone()
        assert rest == "stored 7\\n\n"
    assert abs(at - datetime.now(UTC)) < timedelta(days=1)


def test_a_node_may_log_json(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--log-format", "json", "--log", "debug")
    with ending(node):
        node.start()
        assert node.stop() == 0
