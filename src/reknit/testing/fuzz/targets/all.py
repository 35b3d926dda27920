"""All targets by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from reknit.testing.fuzz.targets.admin import AdminTarget
from reknit.testing.fuzz.targets.configuration import ConfigTarget
from reknit.testing.fuzz.targets.console import ConsoleTarget
from reknit.testing.fuzz.targets.datagrams import DatagramTarget
from reknit.testing.fuzz.targets.http import HttpTarget
from reknit.testing.fuzz.targets.journal import JournalTarget
from reknit.testing.fuzz.targets.metrics import MetricsTarget
from reknit.testing.fuzz.targets.target import LocalTarget, PortTarget
from reknit.testing.fuzz.targets.tcp import TcpTarget
from reknit.testing.fuzz.targets.tunnel import TunnelTarget

SHARES: Final = {
    "tcp": 25,
    "admin": 5,
    "http": 15,
    "console": 5,
    "amqp": 15,
    "zenoh": 2,
    "metrics": 2,
    "datagrams": 5,
    "tunnel": 15,
    "journal": 5,
    "config": 10,
}
"""How many of the inputs of a whole campaign each target gets, beside the others."""
NAMES: Final = tuple(SHARES)
NEEDED: Final = {"amqp": "proton", "zenoh": "zenoh"}
"""By target: the package that it needs."""
LOCAL: Final[dict[str, type[LocalTarget]]] = {
    one.name: one for one in (DatagramTarget, TunnelTarget, JournalTarget, ConfigTarget)
}


def local_target(name: str) -> LocalTarget:
    """A target whose inputs are tried in a process of this program."""
    return LOCAL[name]()


def port_target(name: str) -> PortTarget | None:
    """A target whose inputs are for a port of a node; None if this machine can't serve it."""
    for one in (TcpTarget, AdminTarget, HttpTarget, ConsoleTarget, MetricsTarget):
        if name == one.name:
            return one()
    if find_spec(NEEDED[name]) is None:
        return None
    if name == "zenoh":
        from reknit.testing.fuzz.targets.zenoh import ZenohTarget

        return ZenohTarget()
    from reknit.testing.fuzz.targets.amqp import AmqpTarget

    return AmqpTarget()


def left_out(name: str) -> str:
    """Why a target is left out on this machine."""
    return f"the Python package {NEEDED[name]} is not installed"


def parts_of(names: Sequence[str]) -> dict[str, float]:
    """The part of a campaign that each of these targets gets.

    >>> parts_of(["tcp", "http"])
    {'tcp': 0.625, 'http': 0.375}
    """
    total = sum(SHARES[name] for name in names)
    return {name: SHARES[name] / total for name in names}
