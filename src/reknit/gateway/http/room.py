"""Room for connections and tunnels: how many files the process may have open, and how many tunnels there may be."""

from __future__ import annotations

import logging

from reknit.config import HttpSettings
from reknit.protocol.tunnel.server import TunnelServer
from reknit.transport.file_limits import files_max

log = logging.getLogger("reknit.http")


class TunnelRoom:
    """Decides whether a connection may be served, and whether it may become a tunnel.

    A new connection gets the lowest free file number, so its number tells how many files are open.
    """

    def __init__(self, settings: HttpSettings, tunnels: TunnelServer) -> None:
        self._settings = settings
        self._tunnels = tunnels
        self.files_max = files_max()
        """How many files, connections included, this process may have open."""

    @property
    def tunnels_max(self) -> int:
        """The most tunnels there can be: `http.tunnels_max`, or fewer if the file limit is lower."""
        return max(0, min(self._settings.tunnels_max, self.files_max - self._settings.files_reserved))

    def warn(self) -> None:
        """Log a warning if the file limit allows fewer tunnels than configured."""
        settings = self._settings
        if self.tunnels_max < settings.tunnels_max:
            why = f"the limit is {self.files_max:,} open files (ulimit -n), {settings.files_reserved} are reserved"
            text = "room for %s tunnels, not for the %s of http.tunnels_max: %s"
            log.warning(text, f"{self.tunnels_max:,}", f"{settings.tunnels_max:,}", why)

    def refusal(self, fd: int, address: str) -> str:
        """Why this connection can't become a tunnel now; empty if it can."""
        reserved = self._settings.files_reserved
        if fd >= self.files_max - reserved:
            return (
                f"the server may have {self.files_max} files open (ulimit -n), and the last {reserved} are "
                "reserved (http.files_reserved)"
            )
        return self._tunnels.refusal(address)

    def has_room(self, fd: int) -> bool:
        """Whether a request can be read from this connection. Half of the reserved files are not for connections."""
        return fd < self.files_max - self._settings.files_reserved // 2
