"""All targets by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from reknit.testing.fuzz.targets.configuration import ConfigTarget
from reknit.testing.fuzz.targets.datagrams import DatagramTarget
from reknit.testing.fuzz.targets.http import HttpTarget
from reknit.testing.fuzz.targets.journal import JournalTarget
from reknit.testing.fuzz.targets.metrics import MetricsTarget
from reknit.testing.fuzz.targets.target import LocalTarget, PortTarget
from reknit.testing.fuzz.targets.tcp import TcpTarget
from reknit.testing.fuzz.targets.tunnel import TunnelTarget

SHARES: Final = {
    "tcp": 30,
    "http": 20,
    "amqp": 15,
    "metrics": 2,
    "datagrams": 5,
    "tunnel": 15,
    "journal": 5,
    "config": 10,
}
"""How many of the inputs of a whole campaign each target gets, beside the others."""
NAMES: Final = tuple(SHARES)
LOCAL: Final[dict[str, type[LocalTarget]]] = {
    one.name: one for one in (DatagramTarget, TunnelTarget, JournalTarget, ConfigTarget)
}


def local_target(name: str) -> LocalTarget:
    """A target whose inputs are tried in a process of this program."""
    return LOCAL[name]()


def port_target(name: str) -> PortTarget | None:
    """A target whose inputs are for a port of a node; None if this machine can't serve it."""
    if name == TcpTarget.name:
        return TcpTarget()
    if name == HttpTarget.name:
        return HttpTarget()
    if name == MetricsTarget.name:
        return MetricsTarget()
    if find_spec("proton") is None:
        return None
    from reknit.testing.fuzz.targets.amqp import AmqpTarget

    return AmqpTarget()


def parts_of(names: Sequence[str]) -> dict[str, float]:
    """The part of a campaign that each of these targets gets.

    >>> parts_of(["tcp", "http"])
    {'tcp': 0.6, 'http': 0.4}
    """
    total = sum(SHARES[name] for name in names)
    return {name: SHARES[name] / total for name in names}
