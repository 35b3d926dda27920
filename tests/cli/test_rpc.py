"""`reknit request` and `reknit serve` against a real node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import reknit
from reknit.processes.process import NodeProcess, Process, ending

pytestmark = pytest.mark.real

SHOUT, FAIL, SLEEP, WHO = "//vcu/10/1/1", "//vcu/10/1/2", "//vcu/10/1/3", "//vcu/10/1/4"
COMMANDS = {
    SHOUT: "tr a-z A-Z",
    FAIL: "echo first >&2; echo 'no such door' >&2; exit 3",
    SLEEP: "echo $$ >> sleeping.pids; exec sleep 600",
    WHO: "echo $REKNIT_REQUEST_SOURCE",
}
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node, and a service for each of the commands."""
    folder = tmp_path_factory.mktemp("node")
    process = NodeProcess(folder, "--journal", "memory")
    services = [
        Process(
            f"serve{number}",
            [sys.executable, "-m", "reknit", "serve", address, "--exec", command, "--node", process.url],
            folder,
        )
        for number, (address, command) in enumerate(COMMANDS.items())
    ]
    with ending(process, *services):
        process.start()
        for service in services:
            service.start()
        wait_for(process.url, len(services))
        yield process
        for service in services:
            assert service.stop() in (0, 143), service.output()
            assert "serving up://vcu/10/1/" in service.output()
            assert "Traceback" not in service.output()


def wait_for(url: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with reknit.connect_sync(url) as session:
        while sum(row["name"].startswith("serve/") for row in session.status()["subscribers"]) < count:
            assert time.monotonic() < deadline, session.status()
            time.sleep(0.05)


def request(
    node: NodeProcess, *args: str, stdin: bytes = b"", code: int = 0
) -> subprocess.CompletedProcess[bytes]:
    return reknit_(node, "request", *args, stdin=stdin, code=code)


def reknit_(
    node: NodeProcess, *args: str, stdin: bytes = b"", code: int = 0
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "reknit", *args, "--node", node.url]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REKNIT_")}
    done = subprocess.run(
        command, input=stdin, capture_output=True, cwd=node.data.parent, env=environ, timeout=PATIENCE_S
    )
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def test_the_answer_is_what_the_command_prints(node: NodeProcess) -> None:
    assert request(node, SHOUT, "hello").stdout == b"HELLO\n"
    assert request(node, SHOUT, stdin=b"one\ntwo\n").stdout == b"ONE\nTWO\n"
    assert request(node, SHOUT, "").stdout == b""


def test_the_command_gets_the_address_of_the_client(node: NodeProcess) -> None:
    first, second = (request(node, WHO, "", "--name", "me").stdout for _ in range(2))
    assert first.startswith(b"up://")
    assert first == second != request(node, WHO, "").stdout


def test_the_last_line_of_stderr_of_a_failing_command_is_returned(node: NodeProcess) -> None:
    assert request(node, FAIL, "x", code=1).stderr == b"error: UNKNOWN: no such door\n"


def test_a_command_that_takes_too_long_is_killed(node: NodeProcess) -> None:
    assert b"DEADLINE_EXCEEDED" in request(node, SLEEP, "x", "--ttl", "300", code=1).stderr
    pid_file = node.data.parent / "sleeping.pids"
    deadline = time.monotonic() + PATIENCE_S
    while not pid_file.exists() or any(is_running(int(pid)) for pid in pid_file.read_text().split()):
        assert time.monotonic() < deadline, "the command was not started, or was not killed"
        time.sleep(0.05)
    assert pid_file.read_text().split()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_address_that_nobody_serves_is_unavailable(node: NodeProcess) -> None:
    assert b"UNAVAILABLE" in request(node, "//vcu/10/1/99", "x", "--ttl", "200", code=1).stderr


def test_an_invalid_address_is_refused_in_one_line(node: NodeProcess) -> None:
    done = request(node, "//vcu/doors", "x", code=1)
    assert done.stderr.startswith(b"error: address '//vcu/doors' is not a valid address")
    assert done.stderr.count(b"\n") == 1


CLOUDEVENT = {
    "specversion": "1.0",
    "id": "00000000-0001-7000-8010-101010101a1a",
    "source": "up://vcu/10/1/8001",
    "type": "up-pub.v1",
    "priority": "CS1",
    "pformat": 3,
    "hash": "kept as it is",
    "data": {"door": [1, 2]},
}


def test_cloudevents_are_published_and_printed_one_per_line(node: NodeProcess) -> None:
    line = json.dumps(CLOUDEVENT).encode() + b"\n"
    done = reknit_(node, "pub", "--format", "cloudevents", stdin=line * 2)
    assert done.stdout == b"2 events stored on their topics\n"
    done = reknit_(node, "sub", "up/vcu/10/0/1/8001", "--format", "cloudevents", "--history", "--count", "2")
    assert [json.loads(row) for row in done.stdout.splitlines()] == [CLOUDEVENT] * 2


def test_an_invalid_cloudevent_is_refused_and_those_before_it_are_stored(node: NodeProcess) -> None:
    other = json.dumps({**CLOUDEVENT, "source": "//vcu/10/1/8002"}).encode()
    done = reknit_(node, "pub", "--format", "cloudevents", stdin=other + b"\n{}\n", code=1)
    assert done.stderr.startswith(b"error: attribute specversion")
    done = reknit_(node, "sub", "up/vcu/10/0/1/8002", "--raw", "--history", "--count", "1")
    assert done.stdout == b'{"door": [1, 2]}\n'


def test_a_topic_and_a_format_are_not_given_together(node: NodeProcess) -> None:
    assert b"no TOPIC" in reknit_(node, "pub", "a", "--format", "cloudevents", code=2).stderr
    assert b"give a TOPIC" in reknit_(node, "pub", code=2).stderr
