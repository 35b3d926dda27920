"""`/api/v1/…`: the figures of a node as JSON, and a few orders. Whoever asks gets what its own rules allow."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from reknit.console.description import describe
from reknit.console.live import LiveFigures
from reknit.console.operator_sessions import Operator, OperatorSessions
from reknit.console.parameters import read_parameters
from reknit.console.resources import RESOURCES, Resource, Values
from reknit.errors import Gone, LocalError, NotConnected, Refused
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.origins import FORBIDDEN, OriginPolicy
from reknit.gateway.http.requests import HttpRequest
from reknit.outcome import Code

log = logging.getLogger("reknit.console")

ROOT: Final = "/api/v1/"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LIVE: Final = f"{ROOT}live"
STATUS: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
}
"""The HTTP status for a google.rpc code; 500 for any other."""


class ConsoleApi:
    """Answers the requests below `/api/v1/`."""

    def __init__(self, sessions: OperatorSessions, origins: OriginPolicy, version: str) -> None:
        self._sessions = sessions
        self._origins = origins
        self._by_path: dict[str, dict[str, Resource]] = {}
        for one in RESOURCES:
            self._by_path.setdefault(ROOT + one.path, {})[one.method] = one
        self._live = LiveFigures(origins)
        self._description = describe(RESOURCES, ROOT, version)

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Answer one request with JSON."""
        if request.path == LIVE and request.method == "GET":
            status, body = await _settled(self._live_answer(connection, request))
            if status == 200:
                return
        else:
            status, body = await _settled(self._answer(connection, request))
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        headers += [("X-Content-Type-Options", "nosniff"), *self._origins.cors(request)]
        connection.answer(status, headers, msgspec.json.encode(body, enc_hook=_plain), request.keep_alive)

    async def metrics(self, connection: HttpConnection, request: HttpRequest) -> None:
        """`/metrics`, for Prometheus."""
        if request.method not in ("GET", "HEAD"):
            connection.answer_text(request, 405, "use GET")
            return
        status, body = await _settled(self._metrics(connection, request))
        if status != 200:
            connection.answer_text(request, status, body["error"])
            return
        headers = [("Content-Type", METRICS_TYPE), ("Cache-Control", "no-store")]
        connection.answer(200, headers, body.encode(), request.keep_alive)

    async def _metrics(self, connection: HttpConnection, request: HttpRequest) -> str:
        if request.refusal:
            raise Refused(Code.UNAUTHENTICATED, request.refusal)
        operator = Operator(request.token, connection.certified, connection.address)
        return str(await (await self._sessions.of(operator)).ask("metrics"))

    async def _live_answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Send figures as they change."""
        if request.refusal:
            raise Refused(Code.UNAUTHENTICATED, request.refusal)

        async def look(asked: str) -> bytes:
            path, _, query = asked.partition("?")
            one = replace(request, path=ROOT + path, query=query)
            status, body = await _settled(self._answer(connection, one))
            return msgspec.json.encode(
                body if status == 200 else {"problem": {"status": status, **body}}, enc_hook=_plain
            )

        await self._live.answer(connection, request, look)

    async def _answer(self, connection: HttpConnection, request: HttpRequest) -> Any:
        if request.path == f"{ROOT}openapi.json":
            return self._description
        methods = self._by_path.get(request.path)
        if methods is None:
            known = ", ".join((*self._by_path, f"{ROOT}openapi.json"))
            raise HttpProblem(404, Code.NOT_FOUND, f"{request.path} does not exist; there are {known}")
        resource = methods.get(request.method)
        if resource is None:
            text = f"{request.path} takes {' and '.join(methods)}, not {request.method}"
            raise HttpProblem(405, Code.UNIMPLEMENTED, text)
        if request.refusal:
            raise Refused(Code.UNAUTHENTICATED, request.refusal)
        values = self._values(resource, request)
        operator = Operator(request.token, connection.certified, connection.address)
        session = await self._sessions.of(operator)
        try:
            return await resource.answer(session, values)
        except NotConnected:
            if not session.is_lost or resource.method != "GET":
                raise
        # what proved who they are was revoked meanwhile, perhaps: a new connection is told
        return await resource.answer(await self._sessions.of(operator), values)

    def _values(self, resource: Resource, request: HttpRequest) -> Values:
        """The parameters and the body. An order has to be JSON, which no foreign page can send without asking first."""
        given = parse_qsl(request.query, keep_blank_values=True, errors="replace")
        values = dict(read_parameters(resource.parameters, given))
        if resource.body is None:
            return values
        if not self._origins.is_allowed(request):
            raise HttpProblem(403, Code.PERMISSION_DENIED, FORBIDDEN)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HttpProblem(415, Code.INVALID_ARGUMENT, "send the order as application/json")
        try:
            return {**values, "body": msgspec.json.decode(request.body or b"{}", type=resource.body)}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LocalError(f"the order is not valid: {error}") from None


class HttpProblem(Exception):
    """A request that can't be answered, with the status that says so."""

    def __init__(self, status: int, code: Code, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


async def _settled(answer: Awaitable[Any]) -> tuple[int, Any]:
    """The status and the body for an answer, or for what went wrong."""
    try:
        return 200, await answer
    except HttpProblem as problem:
        return problem.status, _problem(problem.code, str(problem))
    except Refused as error:
        return STATUS.get(Code(error.code), 500), _problem(Code(error.code), error.text)
    except Gone as error:
        return 404, _problem(Code.NOT_FOUND, str(error))
    except NotConnected as error:
        return 503, _problem(Code.UNAVAILABLE, error.why)
    except LocalError as error:
        return 400, _problem(Code.INVALID_ARGUMENT, str(error))


def _problem(code: Code, text: str) -> dict[str, str]:
    return {"code": code.name, "error": text}


def _plain(value: Any) -> Any:
    """What JSON has no type for: bytes are hexadecimal digits, as sources are everywhere else."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")
