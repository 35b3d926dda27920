"""A library that is loaded into a node before the C library, so that its disk and its clock can fail while it runs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

CODE = Path(__file__).with_name("faults.c")
COMPILERS = ("cc", "gcc", "clang")


def build(folder: Path) -> Path | None:
    """Compile the library into the folder; None if this machine has no C compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(CODE), "-ldl"]
    done = subprocess.run(command, capture_output=True)
    return library if done.returncode == 0 else None


class Control:
    """The faults of one node's disk and clock, as they are now. The node reads them at every call."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.clock_ahead_s = 0
        self.syncs_fail = False
        self.is_disk_full = False
        self.write()
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(file)}

    def write(self) -> None:
        """Make the node see the fields."""
        values = struct.pack("@qqq", self.clock_ahead_s, self.syncs_fail, self.is_disk_full)
        if not self._file.exists():
            self._file.write_bytes(values)
        with self._file.open("r+b") as file:  # in place: the node has this file in its memory
            file.write(values)
