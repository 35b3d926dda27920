"""Accepting connections, for nodes and gateways: a server with its real address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from reknit.transport.tls_server import CurrentTls, TlsServer, listening_sockets

Server = asyncio.Server | TlsServer


async def open_server(
    make: Callable[[], asyncio.BaseProtocol],
    scheme: str,
    host: str,
    port: int,
    *,
    tls: CurrentTls | None = None,
    backlog: int = 1024,
) -> tuple[Server, str]:
    """Accept connections; gives the server and its actual address (port 0 takes a free port). Raises `OSError`."""
    at = f"{scheme}://{f'[{host}]' if ':' in host else host}"
    if tls is not None:
        sockets = await listening_sockets(host, port, backlog)
        url = f"{at}:{sockets[0].getsockname()[1]}"
        return TlsServer(sockets, make, tls, url), url
    server = await asyncio.get_running_loop().create_server(make, host, port, backlog=backlog)
    return server, f"{at}:{server.sockets[0].getsockname()[1]}"


def listen_failure(address: str, error: OSError) -> str:
    """Why the address that a setting names can't be listened on.

    >>> listen_failure("tcp://127.0.0.1:80", PermissionError(13, "as asyncio puts it, with the address again"))
    "names tcp://127.0.0.1:80, which can't be listened on: permission denied"
    """
    number = error.errno or 0  # negative if the host's name is not known
    why = os.strerror(number).lower() if number > 0 else (error.strerror or str(error))
    return f"names {address}, which can't be listened on: {why}"
