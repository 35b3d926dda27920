"""Pages: which function answers which path, and the small pages that need nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from reknit.errors import ReknitError
from reknit.gateway.access import Access
from reknit.gateway.http.connection import TEXT, HttpConnection
from reknit.gateway.http.origins import FORBIDDEN, FOREIGN_HOST, PREFLIGHT, HostPolicy, OriginPolicy
from reknit.gateway.http.requests import HttpRequest, first, parse_form
from reknit.gateway.http.script import ENTRY, FOLDER, ScriptPages
from reknit.trust.gate import Gate
from reknit.trust.identities import Identity, Unauthenticated

log = logging.getLogger("reknit.http")

INDEX = (
    "reknit: mod_pubsub at /kn, Server-Sent Events at /sse?topic=PATTERN, WebSocket at /ws?topic=PATTERN; "
    "POST CloudEvents to /cloudevents"
)
TOKEN_IN_URL = (
    "a token may not stand in a URL, which ends up in logs: send it as Authorization: Bearer TOKEN, or, for EventSource "
    "and WebSocket in a page, get a ticket from POST /ticket and send ticket=TICKET. Revoke the token that you sent."
)
Page = Callable[[HttpConnection, HttpRequest], Awaitable[None]]


class Pages:
    """Answers requests. `by_path` maps a path to its page, `by_prefix` the beginning of a path; you may add your own."""

    def __init__(
        self,
        by_path: Mapping[str, Page],
        *,
        access: Access,
        gate: Gate,
        origins: OriginPolicy,
        hosts: HostPolicy,
    ) -> None:
        script = ScriptPages().answer
        self.by_path: dict[str, Page] = {**by_path, ENTRY: script, "/": self._index}
        self.by_prefix: dict[str, Page] = {"/kn/": self.by_path["/kn"], FOLDER: script}
        self._access = access
        self._gate = gate
        self._origins = origins
        self._hosts = hosts
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Answer a request in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._answer(connection, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the requests that are being answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        try:
            request = self._identified(connection, request)
            if request.refusal and not await self._may_answer(connection):
                connection.abort()
                return
            await self._page(request)(connection, request)
            if connection.answered == 403 and not request.refusal:
                self._report(connection.address, request)
        except ReknitError as error:
            connection.answer_text(request, 500, str(error))
        except Exception:  # whatever failed may also be needed for an answer with all its headers
            log.exception("%s %s failed", request.method, request.path)
            connection.answer(500, [TEXT], b"internal error; see the server's log\n", request.keep_alive)
        connection.next_request()

    def _identified(self, connection: HttpConnection, request: HttpRequest) -> HttpRequest:
        """The request with the identity of whoever sent it, or with the reason why that is not proven."""
        address = connection.address
        try:
            identity = self._identity(connection, request)
            if identity.means:
                self._gate.audit.login(identity, "http", address)
            return replace(request, identity=identity)
        except Unauthenticated as error:
            self._gate.audit.login(None, "http", address, error.why)
            return replace(request, refusal=error.why)

    def _report(self, address: str, request: HttpRequest) -> None:
        """A request was refused, not for its token, which is a failed login."""
        user = request.identity.name
        text = f"{user} may not {request.method} {request.path}"
        self._gate.refusals.report(user, "denied", text, address=address, door="http")

    def _identity(self, connection: HttpConnection, request: HttpRequest) -> Identity:
        """Who sent a request. Raises `Unauthenticated`."""
        form = parse_form(request.query)
        if first(form, "token"):
            raise Unauthenticated(TOKEN_IN_URL)
        ticket = first(form, "ticket") if request.method == "GET" else ""
        if ticket:
            return self._gate.redeem(ticket)
        return self._access.identify(request.token, connection.certified)

    async def _may_answer(self, connection: HttpConnection) -> bool:
        """Wait, after a token that proves nothing; False if there were too many of them from this address."""
        address, attempts = connection.address, self._gate.attempts
        wait_s = attempts.failed(address, "http")
        if wait_s:
            try:
                await asyncio.sleep(wait_s)
            finally:
                attempts.answered(address)
        return wait_s is not None

    def _page(self, request: HttpRequest) -> Page:
        if not self._hosts.is_allowed(request.headers.get("host", "")):
            return self._foreign
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return self._preflight
        if request.path in self.by_path:
            return self.by_path[request.path]
        below = (page for begin, page in self.by_prefix.items() if request.path.startswith(begin))
        return next(below, self._missing)

    async def _foreign(self, connection: HttpConnection, request: HttpRequest) -> None:
        connection.answer_text(request, 403, FOREIGN_HOST)

    async def _missing(self, connection: HttpConnection, request: HttpRequest) -> None:
        text = f"{request.path} does not exist; there are {', '.join(self.by_path)}"
        connection.answer_text(request, 404, text)

    async def _index(self, connection: HttpConnection, request: HttpRequest) -> None:
        connection.answer_text(request, 200, INDEX)

    async def _preflight(self, connection: HttpConnection, request: HttpRequest) -> None:
        if not self._origins.is_allowed(request):
            connection.answer_text(request, 403, FORBIDDEN)
            return
        headers = [*self._origins.cors(request), *PREFLIGHT]
        connection.answer(204, headers, b"", request.keep_alive)
