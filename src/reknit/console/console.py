"""The console of a node: its page at `/`, its figures below `/api/v1/`, and whether it is alive and ready."""

from __future__ import annotations

from reknit.console.api import ROOT as API
from reknit.console.api import ConsoleApi
from reknit.console.files import ROOT as FILES
from reknit.console.files import ConsoleFiles
from reknit.console.operator_sessions import OperatorSessions
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.requests import HttpRequest
from reknit.gateway.http.server import HttpServer
from reknit.node.api import GatewayNode
from reknit.version import __version__


class Console:
    """Adds its pages to a node's HTTP server, and is closed with it."""

    def __init__(self, node: GatewayNode, http: HttpServer) -> None:
        self._node = node
        self._sessions = OperatorSessions(node, node.config)
        self._files = ConsoleFiles()
        api = ConsoleApi(self._sessions, http.origins, __version__)
        pages = http.pages
        self._index = pages.by_path["/"]
        pages.by_path |= {"/": self._home, "/healthz": self._alive, "/readyz": self._ready}
        pages.by_path["/metrics"] = api.metrics
        pages.by_prefix |= {API: api.answer, FILES: self._files.answer}
        http.at_stop.append(self._sessions.close)

    async def _home(self, connection: HttpConnection, request: HttpRequest) -> None:
        """The page for a browser, and a line of text for curl."""
        page = self._files.page if "text/html" in request.headers.get("accept", "") else self._index
        await page(connection, request)

    async def _alive(self, connection: HttpConnection, request: HttpRequest) -> None:
        connection.answer_text(request, 200, "alive")

    async def _ready(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Ready means that the node takes events."""
        problem = self._node.intake_problem
        connection.answer_text(request, 503 if problem else 200, problem or "ready")
