"""The machine of a measurement, and the versions of what was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers.base import Peer

GROUP_BYTES = 1 << 20
SMALL_BYTES = 200
OWN_PACKAGES = ("reknit", "uvloop", "msgspec", "numpy")


def describe(data: Path) -> dict[str, str]:
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return {
        "cpu": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "journal on": file_system(data),
        "disk": disk(data),
        "python": platform.python_version(),
    }


def disk(place: Path, seconds: float = 1.0) -> str:
    """The speed of the disk alone, which limits every subject that stores events before it delivers them."""
    with tempfile.NamedTemporaryFile(dir=place) as file:
        speed_mb = synced_bytes(file.fileno(), bytes(GROUP_BYTES), seconds) / 1e6 / seconds
    with tempfile.NamedTemporaryFile(dir=place) as file:
        syncs = synced_bytes(file.fileno(), bytes(SMALL_BYTES), seconds) / SMALL_BYTES
    return f"{speed_mb:.0f} MB/s in synced appends of 1 MiB, {1e6 * seconds / syncs:.0f} µs for one of 200 B"


def synced_bytes(fd: int, data: bytes, seconds: float) -> int:
    """The number of bytes that a loop of append and sync writes within a time."""
    size, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        size += os.write(fd, data)
        os.fdatasync(fd)
    return size


def cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def file_system(place: Path) -> str:
    """The type of the file system of a path: the mount with the longest matching path."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(path, kind) for path, kind in mounts if place.resolve().is_relative_to(path)]
    return max(holding, key=lambda mount: len(mount[0]))[1]


def versions_of(peers: Collection[Peer]) -> dict[str, str]:
    names = dict.fromkeys([*OWN_PACKAGES, *(name for peer in peers for name in peer.packages)])
    found = {name: installed(name) for name in names}
    programs = filter(None, (peer.program() for peer in peers))
    return found | {Path(path).name: program_version(path) for path in dict.fromkeys(programs)}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def program_version(path: str) -> str:
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else "unknown"
