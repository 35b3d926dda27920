"""The commands against a real node: their output and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending, free_port, start_tied, tied

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("node"), "--journal", "memory")
    with ending(process):
        process.start()
        yield process


class Shell:
    """Runs commands in an empty directory, with a node's address in the environment."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environ = {**os.environ, "REKNIT_NODE": url, "COLUMNS": "100"}

    def __call__(
        self, *args: str, stdin: bytes | None = None, code: int = 0, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            tied(_command(args)),
            input=stdin or b"",
            capture_output=True,
            cwd=self._folder,
            env=self._environ,
            timeout=timeout_s,
        )
        assert done.returncode == code, done
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return start_tied(
            _command(args), stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._folder, env=self._environ
        )


def _command(args: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "reknit", *args]


@pytest.fixture
def shell(node: NodeProcess, tmp_path: Path) -> Shell:
    return Shell(tmp_path, node.url)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that only this test uses."""
    return f"cli/{request.node.name}"


# -- pub and sub


def test_an_event_is_published_and_printed(shell: Shell, topic: str) -> None:
    assert shell("pub", topic, "21.5").stdout.decode() == f"1 event stored on {topic}\n"
    line = shell("sub", topic, "--history", "--count", "1").stdout.decode()
    assert line.split()[1:] == [topic, "1", "21.5"]


def test_every_line_of_stdin_is_an_event(shell: Shell, topic: str) -> None:
    done = shell("pub", topic, stdin=b"one\n\nthree\nlast without an end")
    assert done.stdout.decode() == f"4 events stored on {topic}\n"
    assert (
        shell("sub", topic, "--history", "--count", "4", "--raw").stdout
        == b"one\n\nthree\nlast without an end\n"
    )


def test_empty_stdin_publishes_no_event(shell: Shell, topic: str) -> None:
    assert shell("pub", topic).stdout.decode() == f"0 events stored on {topic}\n"


def test_a_payload_is_published_count_times(shell: Shell, topic: str) -> None:
    assert shell("pub", topic, "x", "--count", "2500").stdout.startswith(b"2,500 events stored")
    assert shell("pub", topic, "--count", "2", stdin=b"1\n2\n3\n").stdout.startswith(b"2 events stored")


def test_the_rate_is_not_exceeded(shell: Shell, topic: str) -> None:
    begun = time.monotonic()
    shell("pub", topic, "x", "--count", "20", "--rate", "40")
    assert time.monotonic() - begun > 19 / 40


def test_json_has_the_fields_of_an_event(shell: Shell, topic: str) -> None:
    shell("pub", topic, stdin=b"text\n\xff\xfe\n")
    text, binary = map(
        json.loads, shell("sub", topic, "--history", "--count", "2", "--json").stdout.splitlines()
    )
    assert (text["topic"], text["seq"], text["payload"]) == (topic, 1, "text")
    assert binary["payload_base64"] == "//4="
    assert set(text) == {"topic", "source", "seq", "time", "payload"}


def test_a_payload_cannot_control_the_terminal(shell: Shell, topic: str) -> None:
    shell("pub", topic, "\x1b[2Jboo")
    assert b"\x1b" not in shell("sub", topic, "--history", "--count", "1").stdout


def test_a_subscriber_resumes_from_a_checkpoint(shell: Shell, topic: str) -> None:
    shell("pub", topic, stdin=b"1\n2\n3\n4\n")
    first = shell("sub", topic, "--history", "--count", "2", "--raw")
    assert first.stdout == b"1\n2\n"
    here = first.stderr.decode().split()[-1]
    assert shell("sub", topic, "--from", here, "--count", "2", "--raw").stdout == b"3\n4\n"


def test_the_checkpoint_of_a_live_subscription_is_its_start(shell: Shell, topic: str) -> None:
    shell("pub", topic, "old")
    process = shell.start("sub", topic, "--raw")
    wait_for_subscriber(shell, topic)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    shell("pub", topic, "new")
    here = err.decode().split()[-1]
    assert shell("sub", topic, "--from", here, "--count", "1", "--raw").stdout == b"new\n"


def test_a_durable_subscriber_gets_the_rest_next_time(shell: Shell, topic: str) -> None:
    shell("pub", topic, stdin=b"1\n2\n3\n")
    name = ("--name", "durable")
    assert shell("sub", topic, "--history", *name, "--count", "2", "--raw").stdout == b"1\n2\n"
    assert shell("sub", topic, *name, "--count", "1", "--raw").stdout == b"3\n"


def test_ctrl_c_shuts_a_subscriber_down_cleanly(shell: Shell, topic: str) -> None:
    process = shell.start("sub", topic)
    wait_for_subscriber(shell, topic)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 130
    assert err.startswith(b"resume with --from c1.")


def wait_for_subscriber(shell: Shell, pattern: str) -> None:
    for _ in range(100):
        rows = json.loads(shell("status", "--json").stdout)["subscribers"]
        if any(row["pattern"] == pattern for row in rows):
            return
    raise AssertionError(f"nobody subscribed to {pattern}")


def test_ctrl_c_makes_a_publisher_print_how_much_is_stored(shell: Shell, topic: str) -> None:
    process = shell.start("pub", topic)
    assert process.stdin is not None
    process.stdin.write(b"1\n2\n")
    process.stdin.flush()
    while topic not in shell("status", "--json").stdout.decode():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 130
    assert err.decode().startswith(f"interrupted: 2 events stored on {topic}")


def test_a_closed_stdout_is_not_an_error(shell: Shell, topic: str) -> None:
    shell("pub", topic, "x" * 1000, "--count", "2000")
    with shell.start("sub", topic, "--history", "--raw") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.parametrize("args", [("pub", "a//b", "x"), ("sub", "a//b"), ("sub", "a", "--from", "c1.oops")])
def test_misuse_is_one_line(shell: Shell, args: tuple[str, ...]) -> None:
    done = shell(*args, code=1)
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "args", [("pub", "a", "x"), ("sub", "a"), ("status",), ("ledger",), ("dead-letters", "list")]
)
def test_no_node_is_one_line_that_says_what_to_do(shell: Shell, args: tuple[str, ...]) -> None:
    code = 2 if args == ("ledger",) else 1  # its 1 means that the ledger does not balance
    done = shell(*args, "--node", f"127.0.0.1:{free_port()}", code=code)
    assert done.stderr.startswith(b"error: no node at tcp://127.0.0.1:")
    assert b"start one with `reknit up`" in done.stderr
    assert done.stderr.count(b"\n") == 1


# -- status, ledger, dead letters


def test_status_shows_topics_and_subscribers(shell: Shell, topic: str) -> None:
    shell("pub", topic, "x")
    text = shell("status").stdout.decode()
    assert topic in text
    body = json.loads(shell("status", "--json").stdout)
    assert {"node", "version", "journal", "topics", "subscribers", "uptime_s"} <= set(body)


def test_the_ledger_balances(shell: Shell, topic: str) -> None:
    shell("pub", topic, stdin=b"1\n2\n3\n")
    shell("sub", topic, "--history", "--name", "audit", "--count", "2")
    rows = {row["topic"]: row for row in json.loads(shell("ledger", "--json").stdout)}
    assert (rows[topic]["published"], rows[topic]["accepted"], rows[topic]["in_flight"]) == (3, 2, 1)
    assert "balanced: published = accepted" in shell("ledger").stdout.decode()


def test_dead_letters_are_listed_with_their_reason(shell: Shell, node: NodeProcess, topic: str) -> None:
    with reknit.connect_sync(node.url) as session, session.subscribe(topic, name="strict") as events:
        session.publish(topic, b"oops")
        next(events).reject(text="not a number")
    rows = json.loads(shell("dead-letters", "list", "--json").stdout)
    (row,) = [row for row in rows if row["topic"] == topic]
    assert (row["subscriber"], row["text"], row["payload"]) == ("strict", "not a number", "oops")
    assert "not a number" in shell("dead-letters", "list").stdout.decode()
    assert "oops" in shell("dead-letters", "show", str(row["no"])).stdout.decode()
    assert b"no dead letter 999" in shell("dead-letters", "show", "999", code=1).stderr


# -- up


def test_up_says_where_it_is_and_what_to_do(shell: Shell, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--set", "limits.batch_bytes=64 KiB")
    with ending(node):
        node.start()
        assert node.stop() == 0
    first, last = node.output().splitlines()
    assert (
        first == f"node listens on {node.url}, journal in {node.data}; try: reknit sub '**' --node {node.url}"
    )
    assert last.startswith("stopping after")


def test_up_refuses_in_one_line(shell: Shell, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        here = ("--data", str(node.data))
        cases = {
            ("--listen", node.url): "address already in use",
            here: "in use by",
            ("--listen", "nowhere"): "is not a valid address",
            ("--set", "node.nam=x"): "did you mean node.name?",
            ("--set", "oops"): "write --set section.key=value",
            ("--config", "missing.toml"): "does not exist",
            ("--journal", "memory", "--listen", "tcp://127.0.0.1:0", "--metrics", "x"): "write HOST:PORT",
            ("--data", "/proc/nothing"): "o such file or directory",
        }
        for args, why in cases.items():
            error = shell("up", *args, code=1).stderr.decode()
            assert error.startswith("error: "), error
            assert error.count("\n") == 1, error
            assert why in error


def test_a_corrupt_journal_is_one_line(shell: Shell, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--set", "journal.segment_bytes=4 KiB")
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session:
            for _ in range(8):
                session.publish("a", b"x" * 3000)
        assert node.stop() == 0
    middle = sorted((node.data / "log").glob("*.log"))[2]
    middle.unlink()
    log = shell("up", "--data", str(node.data), "--listen", node.url, code=1).stderr.decode()
    assert log.startswith("error: journal: ")
    assert log.count("\n") == 1
    assert str(middle) in log


def test_metrics_are_served(shell: Shell, tmp_path: Path) -> None:
    port, web = free_port(), f"127.0.0.1:{free_port()}"
    node = NodeProcess(tmp_path, "--journal", "memory", "--metrics", f"127.0.0.1:{port}", "--http", web)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session, session.subscribe("a", name="audit") as events:
            session.publish("a", b"x")
            next(events)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=150) as answer:
            text = answer.read().decode()
        assert f"http://{web}, 0 connections" in shell("status", "--node", node.url).stdout.decode()
    assert 'reknit_published_total{topic="a"} 1.0' in text
    assert 'reknit_ledger_balanced{subscriber="audit",topic="a"} 1.0' in text
    assert 'reknit_http{what="tunnels_live"} 0.0' in text


# -- config


def test_config_is_shown_checked_and_found(shell: Shell, tmp_path: Path) -> None:
    assert b"limits.batch_bytes" in shell("config", "show").stdout
    assert shell("config", "check").stdout == b"ok: all settings have their defaults\n"
    assert shell("config", "path", code=1).stdout.decode().strip() == str(tmp_path / "reknit.toml")
    (tmp_path / "reknit.toml").write_bytes(shell("config", "show", "--toml").stdout)
    assert shell("config", "path").stdout.decode().strip() == str(tmp_path / "reknit.toml")
    shell("config", "check")
    (tmp_path / "reknit.toml").write_text("[journal]\nkin = 'disk'\n")
    assert b"did you mean journal.kind?" in shell("config", "check", code=1).stderr
