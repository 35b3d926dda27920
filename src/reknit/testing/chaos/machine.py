"""What this machine allows: namespaces of its own, file systems of a given size, a C compiler, Zenoh, AMQP, Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INSIDE = "CHAOS_INSIDE_NAMESPACE"
ENTER = ("unshare", "--map-root-user", "--mount", "--net")
NEEDS = {"amqp": "proton", "zenoh": "zenoh", "spark": "pyspark", "http": "httptools"}
"""The module that each part of the fabric needs."""


def enter_namespace(module: str, arguments: Sequence[str]) -> None:
    """Run this program again with a network and mounts of its own, if that is allowed. Then it does not return."""
    if os.environ.get(INSIDE) or not shutil.which(ENTER[0]) or not shutil.which("ip"):
        return
    if subprocess.run([*ENTER, "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        return
    os.environ[INSIDE] = "1"
    os.execvp(ENTER[0], [*ENTER, sys.executable, "-m", module, *arguments])


@dataclass(frozen=True)
class Machine:
    """The abilities of this machine."""

    has_own_network: bool
    limits_rate: bool
    mounts: bool
    missing: frozenset[str]
    """Parts of the fabric whose packages are not installed."""

    def text(self) -> str:
        """One line about what is not possible here; empty if everything is."""
        lacks = [
            *([] if self.has_own_network else ["no network of its own, so it is never down"]),
            *([] if self.limits_rate else ["no tc, so the network is never throttled"]),
            *([] if self.mounts else ["no small file systems, so disks are full by a preloaded library"]),
            *(f"without {part}: {NEEDS[part]} is not installed" for part in sorted(self.missing)),
        ]
        return "; ".join(lacks)


@cache
def survey() -> Machine:
    """Find out what this machine allows."""
    is_inside = bool(os.environ.get(INSIDE))
    if is_inside:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    missing = {part for part, module in NEEDS.items() if importlib.util.find_spec(module) is None}
    return Machine(is_inside, is_inside and throttle(100) and throttle(0), is_inside, frozenset(missing))


def throttle(mbit: int) -> bool:
    """Limit the rate of this namespace's network; 0: no limit. False if that is not possible."""
    shape = (
        "replace",
        "dev",
        "lo",
        "root",
        "tbf",
        "rate",
        f"{mbit}mbit",
        "burst",
        "64kb",
        "latency",
        "200ms",
    )
    command = ("tc", "qdisc", *(shape if mbit else ("del", "dev", "lo", "root")))
    return bool(shutil.which("tc")) and subprocess.run(command, capture_output=True).returncode == 0


def set_network(is_up: bool) -> None:
    """Take this namespace's network down, or up again."""
    subprocess.run(["ip", "link", "set", "lo", "up" if is_up else "down"], check=True)


def mount_small(folder: Path, size_mib: int) -> None:
    """A file system of this size in memory. It goes away with the namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "chaos", str(folder)], check=True)
