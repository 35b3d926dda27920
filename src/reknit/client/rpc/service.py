"""Services: they answer requests to an address.

A service handles each request before its deadline, and the request counts as accepted once its response is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import UUID

import msgspec

from reknit import environment
from reknit.address import Address
from reknit.batch import Batch
from reknit.client.rpc.attribute_publisher import PublishAttributes
from reknit.client.subscribe.subscription import Subscription
from reknit.envelope.attributes import Attributes, Format, Kind, response_to
from reknit.envelope.columns import read_attributes
from reknit.envelope.ids import IdMaker
from reknit.envelope.status import to_status
from reknit.errors import InvalidAttributes, LocalError, Refused, ReknitError
from reknit.event import Event
from reknit.outcome import Code

log = logging.getLogger("reknit.client")

TEXT_CHARS_MAX = 300
WORKING_S = 0.5
"""How often a service reports progress on the requests that it handles."""


class Request(msgspec.Struct, frozen=True):
    """A request, as its handler gets it."""

    payload: bytes
    attributes: Attributes
    deadline: float
    """When its ttl ends, in the time of the event loop."""
    attempt: int = 1
    """More than 1 if it was delivered before: it may have been carried out already."""

    @property
    def remaining_s(self) -> float:
        """How many seconds are left until the deadline. Call it on the event loop that the request came in on."""
        return self.deadline - asyncio.get_running_loop().time()


HandlerResult = bytes | str | None
Handler = Callable[[Request], Awaitable[HandlerResult]]


class SubscribeToRequests(Protocol):
    """Makes the durable subscription that brings requests."""

    def __call__(self, pattern: str, *, name: str, auto_accept: bool) -> Subscription: ...


class Service:
    """Made by `session.serve(address, handler)`; requests are handled while in its `async with`.

    The handler's result is the response. If the handler raises `Refused(code, text)`, that is the response; any other
    exception becomes the code UNKNOWN. At the request's deadline the handler is cancelled.
    """

    def __init__(
        self,
        address: Address,
        handler: Handler,
        *,
        name: str,
        handlers_max: int,
        publish: PublishAttributes,
        subscribe: SubscribeToRequests,
    ) -> None:
        self.address = address
        self._publish = publish
        self._subscribe = subscribe
        self._handler = handler
        self._name = name or f"serve/{address.topic}"
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker()
        self._slots = asyncio.Semaphore(handlers_max)
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._events: dict[UUID, Event] = {}
        self._task: asyncio.Task[None] | None = None
        self.failure: ReknitError | None = None
        """Why it stopped: another session took over the address, or this one may not serve it."""

    async def __aenter__(self) -> Service:
        ready = self._loop.create_future()
        self._task = self._loop.create_task(self._serve(ready))
        try:
            await asyncio.shield(ready)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> None:
        """Return when the service has stopped. Raises the reason, unless it was closed."""
        assert self._task is not None, "a service is used in an async with"
        await asyncio.wait({self._task})
        if self.failure is not None:
            raise self.failure

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        try:
            subscription = self._subscribe(self.address.topic, name=self._name, auto_accept=False)
            async with subscription as events:
                ready.set_result(None)
                leases = self._loop.create_task(self._extend_leases())
                try:
                    async for batch in events.batches():
                        await self._begin(batch)
                finally:
                    leases.cancel()
                    await self._end_handlers()
        except ReknitError as error:
            self.failure = error
            if not ready.done():
                ready.set_exception(error)
            else:
                log.error("the service at %s stopped: %s", self.address, error)

    async def _extend_leases(self) -> None:
        """Report progress on running requests, so that the node does not deliver them to another service."""
        while True:
            await asyncio.sleep(WORKING_S)
            for event in self._events.values():
                event.in_progress()

    async def _end_handlers(self) -> None:
        """Cancel running handlers. Their requests are released, for the next service at this address."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self, batch: Batch) -> None:
        try:
            several = read_attributes(batch)
        except InvalidAttributes as error:
            batch.reject(Code.INVALID_ARGUMENT, str(error))
            return
        if not several or several[0].type is not Kind.REQUEST:
            batch.reject(Code.INVALID_ARGUMENT, f"only requests can be sent to {self.address}")
            return
        for event, attributes in zip(batch.events(), several, strict=True):
            if attributes.id in self._running:  # redelivered while it is handled
                continue
            await self._slots.acquire()
            self._events[attributes.id] = event
            self._running[attributes.id] = self._loop.create_task(self._handle(event, attributes))

    async def _handle(self, event: Event, attributes: Attributes) -> None:
        now_ms = environment.time_us() // 1000
        remaining_s = (min(attributes.time_ms, now_ms) + attributes.ttl_ms - now_ms) / 1000
        request = Request(event.payload, attributes, self._loop.time() + remaining_s, event.attempt)
        try:
            if remaining_s <= 0:
                event.reject(Code.DEADLINE_EXCEEDED, "its ttl ended before it could be handled")
            else:
                await self._respond(event, request, remaining_s)
        except asyncio.CancelledError:
            event.release()
            raise
        finally:
            self._running.pop(attributes.id, None)
            self._events.pop(attributes.id, None)
            self._slots.release()

    async def _respond(self, event: Event, request: Request, remaining_s: float) -> None:
        """Handle a request, publish the response, and accept the request once the response is stored."""
        code, payload = Code.OK, b""
        try:
            async with asyncio.timeout(remaining_s) as limit:
                payload = _bytes(await self._handler(request))
        except TimeoutError as error:
            if limit.expired():
                event.reject(
                    Code.DEADLINE_EXCEEDED, f"it was not handled within {request.attributes.ttl_ms} ms"
                )
                return
            code, payload = _failed(self.address, error)
        except Exception as error:
            code, payload = _failed(self.address, error)
        form = Format.UNSPECIFIED if code is Code.OK else Format.PROTOBUF
        try:
            response = response_to(request.attributes, self._ids(), code, form)
            await self._publish(response, payload)
        except (LocalError, Refused) as error:
            log.error("the response of %s could not be sent: %s", self.address, error)
            event.reject(Code.INTERNAL, f"its response could not be sent: {error}")
        else:
            event.accept()


def _bytes(result: HandlerResult) -> bytes:
    if result is None:
        return b""
    return result.encode() if isinstance(result, str) else bytes(result)


def _failed(address: Address, error: Exception) -> tuple[Code, bytes]:
    """The code and the status for a handler that failed."""
    if isinstance(error, Refused):
        code = Code(error.code) if 0 < error.code <= max(Code) else Code.UNKNOWN
        return code, to_status(code, error.text)
    log.error("the handler of %s failed", address, exc_info=error)
    text = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
    return Code.UNKNOWN, to_status(Code.UNKNOWN, text)
