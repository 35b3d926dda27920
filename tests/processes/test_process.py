"""A process ends with its parent, even if the parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reknit.processes.process import Process, ending, start_tied, tied

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent"),
]

# The thread that starts the child has ended when the child's id is printed. The process lives until a line arrives.
PARENT = """
import os, sys, threading
from pathlib import Path
from reknit.processes.process import Process

child = Process("child", ["sleep", "600"], Path(sys.argv[1]))
thread = threading.Thread(target=child.start)
thread.start()
thread.join()
print(child.pid, flush=True)
sys.stdin.readline()
os._exit(1)
"""


def is_sleeping(pid: int) -> bool:
    """Whether the program itself runs with this process id."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:
        return False


def wait_until(pid: int, sleeps: bool) -> None:
    deadline = time.monotonic() + 150
    while is_sleeping(pid) != sleeps:
        assert time.monotonic() < deadline, f"{pid} {'does not run' if sleeps else 'still runs'}"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["os._exit", "kill -9"])
def test_process_ends_with_its_parent_but_not_with_the_thread_that_started_it(
    tmp_path: Path, how: str
) -> None:
    pipe, command = subprocess.PIPE, [sys.executable, "-c", PARENT, str(tmp_path)]
    with start_tied(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_until(child, True)
        if how == "os._exit":
            parent.stdin.write("\n")
            parent.stdin.flush()
        else:
            parent.send_signal(signal.SIGKILL)
        parent.wait(150)
        wait_until(child, False)


def test_orphan_does_not_even_start(tmp_path: Path) -> None:
    command = tied([sys.executable, "-c", "import sys; open(sys.argv[1], 'w')", str(tmp_path / "file")])
    command[command.index(str(os.getpid()))] = "1"  # as if its parent had ended meanwhile
    assert subprocess.run(command, check=False, timeout=150).returncode == 1
    assert not (tmp_path / "file").exists()


def test_missing_program_is_reported_in_its_output(tmp_path: Path) -> None:
    process = Process("nobody", [str(tmp_path / "nobody")], tmp_path)
    with ending(process):
        process.start()
        assert process.wait(20) == 1
    assert "No such file or directory" in process.output()
