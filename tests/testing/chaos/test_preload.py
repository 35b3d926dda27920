"""The preloaded library: syncs, writes and the clock of a running process fail when they are told to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reknit.testing.chaos.preload import Control, build

PROGRAM = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for line in sys.stdin:
    said = []
    for call in (lambda: os.fdatasync(fd), lambda: os.fsync(fd), lambda: os.pwrite(fd, b"x", 0),
                 lambda: os.pwritev(fd, [b"x"], 0), lambda: os.posix_fallocate(fd, 0, 10)):
        try:
            call()
            said.append("ok")
        except OSError as error:
            said.append(os.strerror(error.errno).split()[0])
    print(*said, int(time.time() - float(line)), flush=True)
"""


def test_a_running_process_sees_each_fault_and_its_end(tmp_path: Path) -> None:
    library = build(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler")
    control = Control(library, tmp_path / "control")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "file")]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **control.environ},
    ) as process:

        def ask() -> list[str]:
            assert process.stdin is not None
            assert process.stdout is not None
            control.write()
            process.stdin.write(f"{time.time()}\n")
            process.stdin.flush()
            return process.stdout.readline().split()

        assert ask()[:5] == ["ok"] * 5
        control.syncs_fail = True
        assert ask()[:5] == ["Input/output"] * 2 + ["ok"] * 3
        control.syncs_fail, control.is_disk_full = False, True
        assert ask()[:5] == ["ok"] * 2 + ["No"] * 3
        control.is_disk_full, control.clock_ahead_s = False, 86_400
        *rest, ahead_s = ask()
        assert rest == ["ok"] * 5
        assert 86_000 < int(ahead_s) < 87_000
        control.clock_ahead_s = 0
        assert int(ask()[-1]) < 1_000
        process.communicate()
