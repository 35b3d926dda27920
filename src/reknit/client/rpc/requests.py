"""Requests to addresses: each waits for the first response to its id.

The response comes from the service at that address, or from a node that could not deliver the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import xxhash

from reknit.address import Address
from reknit.batch import Batch
from reknit.client.rpc.attribute_publisher import PublishAttributes
from reknit.client.subscribe.subscription import Subscription
from reknit.config import RpcSettings
from reknit.connection.deadline_timer import DeadlineTimer
from reknit.connection.publish_driver import StoredFuture
from reknit.envelope.attributes import Attributes, Kind, Priority, check
from reknit.envelope.columns import read_attributes
from reknit.envelope.ids import IdMaker
from reknit.envelope.status import from_status
from reknit.errors import Closed, Full, InvalidAttributes, Refused, ReknitError, RequestFailed
from reknit.outcome import Code
from reknit.protocol.rpc.requests import Requests, RequestSent, RequestsFailed, ResponseReceived

log = logging.getLogger("reknit.client")

NAMED_ENTITY = 0xFFFD
"""The service number in the address of a service that has only a name."""
CLIENT_ENTITY = 0xFFFE
"""The service number in the address of a session that was given no address."""


class Reply(msgspec.Struct, frozen=True):
    """The response to a request that succeeded."""

    payload: bytes
    attributes: Attributes


def address_of(address: Address | str) -> Address:
    """The address, parsed if it is text. A name, which has no slash, is the authority of an address.

    >>> str(address_of("calc.add")), str(address_of("//vcu/10/1/7"))
    ('up://calc.add/FFFD/1/1', 'up://vcu/10/1/7')
    """
    if not isinstance(address, str):
        return address
    if "/" in address or ":" in address:
        return Address.parse(address)
    return Address(address, NAMED_ENTITY, 1, 1)


def default_address(name: str, id_: bytes) -> Address:
    """The address for responses to a session that was given no address: the same one for the same name.

    >>> str(default_address("", bytes(8)))
    'up://0000000000000000/FFFE/1/0'
    """
    unique = xxhash.xxh3_64_digest(name.encode()) if name else id_
    return Address(unique.hex(), CLIENT_ENTITY, 1, 0)


class Caller:
    """The requests of one session. Responses come to `address`, which it subscribes to."""

    def __init__(
        self,
        address: Address,
        settings: RpcSettings,
        *,
        publish: PublishAttributes,
        subscribe: Callable[[str], Subscription],
    ) -> None:
        self.requests = Requests()
        self._address = address
        self._settings = settings
        self._publish = publish
        self._subscribe = subscribe
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker()
        self._waiting: dict[UUID, tuple[asyncio.Future[Reply], Attributes]] = {}
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer = DeadlineTimer(self._tick)

    async def request(self, attributes: Attributes, payload: bytes) -> Reply:
        """The reply to a request. Raises `RequestFailed`, and `Full` at the limit."""
        requests_max = self._settings.requests_max
        if len(self.requests) >= requests_max:
            raise Full(f"{requests_max} requests wait for their responses", "rpc.requests_max")
        due = self._loop.time() + attributes.ttl_ms / 1000 + self._settings.grace_s
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[attributes.id] = (future, attributes)
        self.requests.receive(RequestSent(attributes.id, due, attributes.sink), "", self._loop.time())
        self._perform()
        try:
            await self._listen(future)
            if not future.done():
                stored = self._publish(attributes, payload)
                stored.add_done_callback(partial(self._stored, attributes.id))
            return await future
        finally:
            self._waiting.pop(attributes.id, None)
            self._fail([attributes.id], Code.CANCELLED, "given up")

    def make(
        self, address: Address, ttl_ms: int | None, priority: int | None, more: dict[str, object]
    ) -> Attributes:
        """The attributes of a request, checked. Raises `InvalidAttributes`."""
        if priority is not None and priority not in list(Priority):
            raise InvalidAttributes("priority", f"must be from CS4 to CS6, not {priority!r:.40}")
        return check(
            Attributes(
                id=self._ids(),
                type=Kind.REQUEST,
                source=self._address,
                sink=address,
                priority=Priority.CS4 if priority is None else Priority(priority),
                ttl_ms=self._settings.ttl_ms if ttl_ms is None else ttl_ms,
                **more,  # type: ignore[arg-type]
            )
        )

    # -- sending

    def _stored(self, id_: UUID, stored: StoredFuture) -> None:
        """The node stored a request, or did not: then it fails here."""
        error = None if stored.cancelled() else stored.exception()
        if isinstance(error, Refused):
            self._fail([id_], error.code, error.text)
        elif error is not None:
            self._fail([id_], Code.UNAVAILABLE, str(error))

    def _fail(self, ids: list[UUID], code: int, text: str) -> None:
        self.requests.receive(RequestsFailed(ids, code, text), "", self._loop.time())
        self._perform()

    # -- responses

    async def _listen(self, future: asyncio.Future[Reply]) -> None:
        """Return when responses can come, or the request has ended without one."""
        ready = self._ready
        if ready is None or (ready.done() and ready.exception() is not None):
            ready = self._ready = self._loop.create_future()
            self._task = self._loop.create_task(self._receive(ready))
        if not ready.done():
            either: set[asyncio.Future[Any]] = {ready, future}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not future.done() and ready.done() and (error := ready.exception()) is not None:
            raise error

    async def _receive(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._subscribe(self._address.topic) as events:
                ready.set_result(None)
                async for batch in events.batches():
                    self._take(batch)
            error: ReknitError = Closed("the session")
        except ReknitError as caught:
            error = caught
        if not ready.done():
            ready.set_exception(error)
            ready.exception()  # marks it as retrieved: its waiter may be gone
        self._ready = None
        text = f"responses can't come to {self._address.topic}: {getattr(error, 'text', error)}"
        self._fail(list(self._waiting), getattr(error, "code", Code.UNAVAILABLE), text)

    def _take(self, batch: Batch) -> None:
        try:
            several = read_attributes(batch)
        except InvalidAttributes as error:
            log.warning("%s got events that are not responses: %s", self._address, error)
            return
        for attributes, payload in zip(several, batch.payloads(), strict=False):
            self.requests.receive(ResponseReceived(attributes, payload), "", self._loop.time())
        self._perform()

    # -- the machine

    def _perform(self) -> None:
        for effect in self.requests.take_effects():
            future, request = self._waiting.pop(effect.id, (None, None))
            if future is not None and request is not None and not future.done():
                _resolve(future, request, effect.answer)
        due = self.requests.next_deadline()
        if due is not None:
            self._timer.set(due, self._loop.time())

    def _tick(self) -> None:
        self.requests.tick(self._loop.time())
        self._perform()

    async def close(self) -> None:
        """Raise `Closed` in every request that waits."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for future, _ in list(self._waiting.values()):
            if not future.done():
                future.set_exception(Closed("the session", "connect again"))


def _resolve(
    future: asyncio.Future[Reply], request: Attributes, answer: ResponseReceived | RequestsFailed
) -> None:
    address = str(request.sink)
    if isinstance(answer, RequestsFailed):
        future.set_exception(RequestFailed(answer.code, answer.text, address))
        return
    code = answer.attributes.commstatus or Code.OK
    if code is Code.OK:
        future.set_result(Reply(answer.payload, answer.attributes))
        return
    status = from_status(answer.payload)
    text = status[1] if status is not None and status[0] == code else code.name
    future.set_exception(RequestFailed(code, text, address, answer.payload))
