"""CloudEvents over HTTP: `POST /cloudevents`, one in the body or a list of them. Answered when all are kept.

They say themselves where they go, so that nothing else is in the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from reknit.client.session import Session
from reknit.envelope.attributes import Attributes
from reknit.envelope.cloudevents import from_json
from reknit.errors import Full, InvalidAttributes, Refused
from reknit.gateway.http.requests import Request
from reknit.outcome import Code
from reknit.transport import memory

if TYPE_CHECKING:
    from reknit.gateway.http.connection import HttpConnection
    from reknit.gateway.http.server import HttpServer

PATH: Final = "/cloudevents"
_BATCH: Final = "application/cloudevents-batch+json"
_batch = msgspec.json.Decoder(list[msgspec.Raw])


class CloudEvents:
    """Publishes CloudEvents into the node that it is part of, over a session within the process."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._opening: asyncio.Task[Session] | None = None
        self._stop: Callable[[], None] | None = None

    async def answer(self, connection: HttpConnection, request: Request) -> None:
        """Publish what a request brings."""
        status, text = await self._take(request)
        self._server.say(connection, request, status, text)

    async def _take(self, request: Request) -> tuple[int, str]:
        if request.method != "POST":
            return 400, f"POST a CloudEvent in JSON, or a list of them as {_BATCH}"
        server = self._server
        user = server.access.who(request.token)
        if user is None or not server.is_allowed_origin(request):
            return 403, "the token is not known, or pages of this site may not use this node (http.origins)"
        try:
            several = _read(request)
        except InvalidAttributes as error:
            return 400, str(error)
        for attributes, _ in several:
            if not server.access.may_write(user, attributes.topic):
                return 403, f"{user} may not publish on {attributes.topic}"
        return await self._publish(several)

    async def _publish(self, several: list[tuple[Attributes, bytes]]) -> tuple[int, str]:
        session = await self._session()
        try:
            kept = [session.publish_event(*one) for one in several]
            await asyncio.gather(*kept)
        except Full as error:
            return 503, str(error)
        except Refused as error:
            return (400 if error.code == Code.INVALID_ARGUMENT else 503), error.text
        return 200, f"{len(several)} kept"

    async def _session(self) -> Session:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Session:
        node = self._server.node
        url = f"memory://cloudevents-{id(self)}"
        self._stop = memory.listen(url, node)
        return await Session(url, f"http/{node.name}", node.config).open()

    async def close(self) -> None:
        """Part from the node."""
        if self._opening is not None:
            opened = await asyncio.gather(self._opening, return_exceptions=True)
            if isinstance(opened[0], Session):
                await opened[0].close()
        if self._stop is not None:
            self._stop()


def _read(request: Request) -> list[tuple[Attributes, bytes]]:
    """The events in a request's body, each checked. Raises `InvalidAttributes`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _BATCH:
        return [from_json(request.body)]
    try:
        rows = _batch.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidAttributes("data", f"is no list: {error}") from None
    return [from_json(bytes(row)) for row in rows]
