"""reknit: every event arrives, or you are told why."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.client.session import Session, connect
from reknit.errors import LocalError, ReknitError, RemoteError
from reknit.event import Event
from reknit.outcome import Code

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Checkpoint",
    "Code",
    "Event",
    "LocalError",
    "ReknitError",
    "RemoteError",
    "Session",
    "__version__",
    "connect",
]
