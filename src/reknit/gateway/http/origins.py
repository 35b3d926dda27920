"""Pages of other sites: which of them may use this node, and the headers that tell their browser so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from reknit.gateway.http.requests import HttpRequest

FORBIDDEN: Final = "pages of this site may not use this node (http.origins)"
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
        is_own = urlsplit(origin).netloc == request.headers.get("host", "")
        return is_own or origin in self._origins

    def cors(self, request: HttpRequest) -> list[tuple[str, str]]:
        """The headers by which a browser lets a page of another site read the answer."""
        origin = request.headers.get("origin", "")
        if not origin or not self.is_allowed(request):
            return []
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
