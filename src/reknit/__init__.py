"""reknit: every event arrives, or you are told why.

The modules in this directory are values: events, batches, topics, outcomes, the ledger, and the entries and records of a
journal. Every package imports them; they import only each other and `envelope`. Open `batch.py` first.

The names in `__all__` are loaded when they are first used, so that `reknit --help` starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reknit.address import Address
    from reknit.batch import Batch
    from reknit.checkpoint import Checkpoint
    from reknit.client.blocking.session import SyncSession, connect_sync
    from reknit.client.session import Session, connect
    from reknit.config import Config
    from reknit.errors import Gone, LocalError, NotConnected, Refused, ReknitError, RemoteError
    from reknit.event import Event
    from reknit.outcome import Code
    from reknit.version import __version__

__all__ = [
    "Address",
    "Batch",
    "Checkpoint",
    "Code",
    "Config",
    "Event",
    "Gone",
    "LocalError",
    "NotConnected",
    "Refused",
    "ReknitError",
    "RemoteError",
    "RequestFailed",
    "Session",
    "SyncSession",
    "__version__",
    "connect",
    "connect_sync",
]

_HOMES = {
    "Address": "reknit.address",
    "Batch": "reknit.batch",
    "Checkpoint": "reknit.checkpoint",
    "Code": "reknit.outcome",
    "Config": "reknit.config",
    "Event": "reknit.event",
    "Gone": "reknit.errors",
    "LocalError": "reknit.errors",
    "NotConnected": "reknit.errors",
    "Refused": "reknit.errors",
    "ReknitError": "reknit.errors",
    "RemoteError": "reknit.errors",
    "RequestFailed": "reknit.errors",
    "Session": "reknit.client.session",
    "SyncSession": "reknit.client.blocking.session",
    "__version__": "reknit.version",
    "connect": "reknit.client.session",
    "connect_sync": "reknit.client.blocking.session",
}


if not TYPE_CHECKING:  # otherwise a misspelt name would pass the type checker

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'reknit' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
