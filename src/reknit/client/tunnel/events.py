"""What a tunnel brings: events, or the one error that it can't resume."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reknit.errors import RemoteError
from reknit.protocol.tunnel.elements import CHECKPOINT, ID, LOCATION, PAYLOAD, ROUTED_FROM


class TunnelLost(RemoteError):
    """The tunnel can't resume where it left off: events may be missing. Open a new one to start from now.

    >>> print(TunnelLost("404 Expired"))
    the tunnel is lost: 404 Expired; events may be missing, open a new one to start from now
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the tunnel is lost: {self.why}; events may be missing, open a new one to start from now"


class TunnelEvent(msgspec.Struct, frozen=True):
    """One event, as its elements."""

    elements: Mapping[str, bytes]

    def get(self, name: str, default: str = "") -> str:
        """An element as text."""
        value = self.elements.get(name)
        return default if value is None else value.decode("utf-8", "replace")

    @property
    def payload(self) -> bytes:
        return self.elements.get(PAYLOAD, b"")

    @property
    def id(self) -> str:
        return self.get(ID)

    @property
    def topic(self) -> str:
        """The topic that it was published on, without the leading slash."""
        return self.get(ROUTED_FROM).lstrip("/")

    @property
    def location(self) -> str:
        """The route that delivered it."""
        return self.get(LOCATION)

    @property
    def checkpoint(self) -> str:
        """The checkpoint after it, for a later program's `open(…, checkpoint=…)`."""
        return self.get(CHECKPOINT)
