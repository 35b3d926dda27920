"""All targets by name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from reknit.testing.fuzz.targets.configuration import ConfigTarget
from reknit.testing.fuzz.targets.datagrams import DatagramTarget
from reknit.testing.fuzz.targets.http import HttpTarget
from reknit.testing.fuzz.targets.journal import JournalTarget
from reknit.testing.fuzz.targets.target import LocalTarget, PortTarget, Target
from reknit.testing.fuzz.targets.tcp import TcpTarget
from reknit.testing.fuzz.targets.tunnel import TunnelTarget

NAMES: Final = ("tcp", "http", "amqp", "datagrams", "tunnel", "journal", "config")
LOCAL: Final[dict[str, type[LocalTarget]]] = {
    one.name: one for one in (DatagramTarget, TunnelTarget, JournalTarget, ConfigTarget)
}


def local_target(name: str) -> LocalTarget:
    """A target whose inputs are tried in a process of this program."""
    return LOCAL[name]()


def port_target(name: str) -> PortTarget | None:
    """A target whose inputs are for a port of a node; None if this machine can't serve it."""
    if name == AMQP:
        if find_spec("proton") is None:
            return None
        from reknit.testing.fuzz.targets.amqp import AmqpTarget

        return AmqpTarget()
    return TcpTarget() if name == TcpTarget.name else HttpTarget()


def shares(names: tuple[str, ...]) -> dict[str, int]:
    """How many inputs of a campaign each target gets, beside the others."""
    known: dict[str, type[Target]] = {**LOCAL, TcpTarget.name: TcpTarget, HttpTarget.name: HttpTarget}
    return {name: known[name].share if name in known else AMQP_SHARE for name in names}


AMQP: Final = "amqp"
AMQP_SHARE: Final = 15
