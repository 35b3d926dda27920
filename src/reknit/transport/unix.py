"""Unix sockets: for programs on the same machine, whose users the kernel names."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from reknit.credentials import NO_CREDENTIALS, Credentials, of_user

UNIX: Final = "unix://"
_PEER: Final = struct.Struct("3i")
"""Process, user and group, as Linux gives them."""


def unix_path(url: str) -> str:
    """The path in `unix:///PATH`.

    >>> unix_path("unix:///run/reknit.sock")
    '/run/reknit.sock'
    """
    return url.removeprefix(UNIX)


async def listen_unix(make: Callable[[], asyncio.BaseProtocol], url: str) -> tuple[asyncio.Server, str]:
    """Accept connections at a path; a socket that an earlier process left there is replaced. Raises `OSError`."""
    server = await asyncio.get_running_loop().create_unix_server(make, unix_path(url))
    return server, url


def unix_user(raw: Any) -> Credentials:
    """The user at the other end of a Unix socket, as it was when that connected; none where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return NO_CREDENTIALS
    _, uid, _ = _PEER.unpack(raw.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return of_user(uid)
