"""The programs in `examples/` run as they are, are short, and print what they promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending, free_port
from tests.real.browsers import browser

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".html"))
URL, WEB = "tcp://127.0.0.1:7440", "127.0.0.1:8080"
LINES_MAX = 40
PATIENCE_S = 400  # Spark alone takes half a minute to start on a busy machine


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that has nothing yet, with a gateway for pages."""
    made = NodeProcess(tmp_path, "--http", f"127.0.0.1:{free_port()}", "--set", "http.origins=*")
    with ending(made):
        made.start()
        yield made


def web_of(node: NodeProcess) -> str:
    return node.command[node.command.index("--http") + 1]


def copied(name: str, node: NodeProcess, folder: Path) -> Path:
    """A program that uses this test's node."""
    return changed(name, folder, {URL: node.url, WEB: web_of(node)})


def changed(name: str, folder: Path, replaced: dict[str, str]) -> Path:
    text = (FOLDER / name).read_text()
    for old, new in replaced.items():
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path


def printed(path: Path, *command: str) -> str:
    done = subprocess.run(
        command or [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_eight_and_each_is_short() -> None:
    assert len(PROGRAMS) == 8
    assert [path.name for path in PROGRAMS if len(path.read_text().splitlines()) > LINES_MAX] == []
    listed = (FOLDER / "README.md").read_text()
    assert [path.name for path in PROGRAMS if f"[{path.name}]({path.name})" not in listed] == []


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("sensor.py", "1 71.5\n2 72.0\n3 73.25\n"),
        ("calculator.py", "42\nINVALID_ARGUMENT these are no numbers\n"),
        ("shared_queue.py", "6 pictures, each resized 1 time\n"),
        ("spark_table.py", "a 21.0\nb 70.5\n"),
    ],
)
def test_a_program_prints_this(name: str, output: str, node: NodeProcess, tmp_path: Path) -> None:
    assert printed(copied(name, node, tmp_path)) == output


def test_robots_hear_each_other(tmp_path: Path) -> None:
    """In a group of this test's own: others may try the example on this machine, too."""
    heard = "arm-1 is ready, arm-2 is ready, lift is ready"
    expected = "".join(f"{name} heard: {heard}\n" for name in ("arm-1", "arm-2", "lift"))
    path = changed("robots.py", tmp_path, {'"robots"': f'"robots-{tmp_path.name}-{os.getpid()}"'})
    assert printed(path) == expected


def test_the_worker_books_and_stops(node: NodeProcess, tmp_path: Path) -> None:
    with reknit.connect_sync(node.url) as session:
        for order in (b'{"customer": "Ada", "quantity": 2}', b'{"customer": "Bob", "quantity": 0}'):
            session.publish("orders/new", order)
        command = [sys.executable, str(copied("worker.py", node, tmp_path))]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "booked 2 for Ada\n"
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0


def test_the_test_of_a_handler_passes(node: NodeProcess, tmp_path: Path) -> None:
    path = copied("test_handler.py", node, tmp_path)
    assert "1 passed" in printed(
        path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name
    )


def test_the_page_shows_events(node: NodeProcess, tmp_path: Path) -> None:
    page_file = copied("page.html", node, tmp_path)
    with browser() as chromium:
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        reads = "document.getElementById('state').textContent.startsWith('live')"
        page.wait_for_function(reads, timeout=PATIENCE_S * 1000)
        with reknit.connect_sync(node.url) as session:
            session.publish("plant/boiler/temp", b"71.5")
        page.wait_for_selector("li", timeout=PATIENCE_S * 1000)
        assert page.inner_text("#events") == "71.5"
