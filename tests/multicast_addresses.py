"""Multicast addresses for tests, so that tests that run at the same time do not join each other's groups."""

from __future__ import annotations

import itertools
import os

_ports = itertools.count(20_000)


def multicast_address() -> str:
    """An address that no other test uses: the host is this process's, the port is new."""
    pid = os.getpid()
    return f"239.{64 + (pid >> 16) % 64}.{(pid >> 8) % 256}.{pid % 256}:{next(_ports)}"
