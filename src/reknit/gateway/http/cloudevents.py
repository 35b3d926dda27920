"""CloudEvents over HTTP: `POST /cloudevents` with one event or a list of them. Answered when all are stored.

The events contain their topics, so the request needs no further parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from reknit.client.session import Session
from reknit.config import Config
from reknit.decoding import UNREADABLE
from reknit.envelope.attributes import Attributes
from reknit.envelope.cloudevents import from_json
from reknit.errors import Full, InvalidAttributes, Refused
from reknit.gateway.access import Access
from reknit.gateway.client_quotas import RETRY_AFTER_S, ClientQuotas
from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.origins import FORBIDDEN, OriginPolicy
from reknit.gateway.http.requests import HttpRequest
from reknit.gateway.publish_pace import PublishPace
from reknit.outcome import Code
from reknit.transport import memory
from reknit.transport.connection import Handler

PATH: Final = "/cloudevents"
_BATCH: Final = "application/cloudevents-batch+json"
_batch = msgspec.json.Decoder(list[msgspec.Raw])


class CloudEventsPage:
    """Publishes CloudEvents on the node, over a session within the process. The first request opens it."""

    def __init__(
        self,
        node: Handler,
        *,
        name: str,
        config: Config,
        access: Access,
        origins: OriginPolicy,
        pace: PublishPace,
        quotas: ClientQuotas,
    ) -> None:
        self._pace = pace
        self._quotas = quotas
        self._node = node
        self._name = name
        self._config = config
        self._access = access
        self._origins = origins
        self._opening: asyncio.Task[Session] | None = None
        self._stop: Callable[[], None] | None = None

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Publish the events of a request."""
        status, text = await self._take(request)
        again = self._pace.retry_after_s(request.identity.name) if status == 429 else 0
        headers = [("Retry-After", str(max(again, RETRY_AFTER_S)))] if again else []
        connection.answer_text(request, status, text, headers)

    async def _take(self, request: HttpRequest) -> tuple[int, str]:
        if request.method != "POST":
            return 400, f"POST a CloudEvent in JSON, or a list of them as {_BATCH}"
        if not self._origins.is_allowed(request):
            return 403, FORBIDDEN
        if request.refusal:
            return 403, request.refusal
        user = request.identity.name
        try:
            several = _read(request)
        except InvalidAttributes as error:
            return 400, str(error)
        for attributes, _ in several:
            if not self._access.may_publish(user, attributes.topic):
                return 403, f"{user} may not publish on {attributes.topic}"
            if not self._access.may_be(user, attributes.source):
                rule = f"{user} as {attributes.source}"
                return 403, f"{user} may not be {attributes.source}: add '{rule}' to security.allow"
        if why := await self._wait(user, several):
            return 429, f"RESOURCE_EXHAUSTED: {why}"
        return await self._publish(several)

    async def _wait(self, user: str, several: list[tuple[Attributes, bytes]]) -> str:
        """Wait for the quotas of a user. Returns why the events may not be published in this time, if so."""
        for topic in dict.fromkeys(attributes.topic for attributes, _ in several):
            if why := self._quotas.publish(user, topic):
                return why
        size = sum(len(payload) for _, payload in several)
        return await self._pace.wait(user, len(several), size, self._config.http.request_timeout_s)

    async def _publish(self, several: list[tuple[Attributes, bytes]]) -> tuple[int, str]:
        session = await self._session()
        try:
            await asyncio.gather(*[session.publish_event(*one) for one in several])
        except Full as error:
            return 503, str(error)
        except Refused as error:
            return (400 if error.code == Code.INVALID_ARGUMENT else 503), error.text
        return 200, f"{len(several)} stored"

    async def _session(self) -> Session:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Session:
        url = memory.new_url("cloudevents")
        self._stop = memory.listen(url, self._node)
        return await Session(url, f"http/{self._name}", self._config).open()

    async def close(self) -> None:
        """Close the session."""
        if self._opening is not None:
            opened = await asyncio.gather(self._opening, return_exceptions=True)
            if isinstance(opened[0], Session):
                await opened[0].close()
        if self._stop is not None:
            self._stop()


def _read(request: HttpRequest) -> list[tuple[Attributes, bytes]]:
    """The events in a request's body, checked. Raises `InvalidAttributes`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _BATCH:
        return [from_json(request.body)]
    try:
        rows = _batch.decode(request.body)
    except UNREADABLE as error:
        raise InvalidAttributes("data", f"is not a JSON list: {error}") from None
    return [from_json(bytes(row)) for row in rows]
