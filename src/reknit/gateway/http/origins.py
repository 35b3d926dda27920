"""Pages of other sites: which of them may use this node, by which name, and the headers that tell their browser so."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from reknit.gateway.http.requests import HttpRequest

FORBIDDEN: Final = "pages of this site may not use this node (http.origins)"
FOREIGN_HOST: Final = "this node listens for this machine only, and has another name (http.hosts)"
PREFLIGHT: Final = [
    ("Access-Control-Allow-Methods", "GET, POST"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, Cache-Control"),
    ("Access-Control-Max-Age", "600"),
]
"""The answer to a browser that asks before it makes a request for a page of another site."""


class OriginPolicy:
    """The sites of `http.origins`; `*` allows every site.

    >>> policy = OriginPolicy(["http://good.example"])
    >>> request = HttpRequest("GET", "/", "", {"origin": "http://good.example", "host": "node"}, b"", "1.1", True)
    >>> policy.is_allowed(request), policy.cors(request)[0]
    (True, ('Access-Control-Allow-Origin', 'http://good.example'))
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = origins

    def is_allowed(self, request: HttpRequest) -> bool:
        """Whether the request comes from no page, from a page of this server, or from an allowed site."""
        if "*" in self._origins:
            return True
        origin = request.headers.get("origin", "")
        if not origin:  # a page's plain GET has no origin, but its browser marks it as cross-site
            return request.headers.get("sec-fetch-site", "") != "cross-site"
        is_own = origin.partition("://")[2] == request.headers.get("host", "")
        return is_own or origin in self._origins

    def cors(self, request: HttpRequest) -> list[tuple[str, str]]:
        """The headers by which a browser lets a page of another site read the answer."""
        origin = request.headers.get("origin", "")
        if not origin or not self.is_allowed(request):
            return []
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]


class HostPolicy:
    """The names by which a request may address the node.

    A node that listens on the loopback address serves this machine. A page of another site can give its own name that
    address, and then it looks like a page of this server: so a foreign name is refused. `http.hosts` allows more, such
    as the name that a proxy on this machine passes on.

    >>> policy = HostPolicy("127.0.0.1", ["events.example"])
    >>> [policy.is_allowed(host) for host in ("localhost:8080", "[::1]:8080", "events.example", "evil.example", "")]
    [True, True, True, False, True]
    """

    def __init__(self, listen_host: str, hosts: Sequence[str]) -> None:
        self._is_any = "*" in hosts or not _is_local(listen_host)
        self._hosts = frozenset(host.lower() for host in hosts)

    def is_allowed(self, host: str) -> bool:
        """Whether the header `Host` has a name of this node. A client that is not a browser may send none."""
        if self._is_any or not host:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return _is_local(name) or name in self._hosts


def _is_local(name: str) -> bool:
    """Whether a name or an address is always that of this machine."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
