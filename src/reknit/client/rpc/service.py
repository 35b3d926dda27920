"""Services: who answers requests to an address.

A service handles each request before its deadline, and the request counts as accepted once its response is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from reknit.address import Address
from reknit.batch import Batch
from reknit.envelope.attributes import Attributes, Format, Kind, response_to
from reknit.envelope.columns import read_attributes
from reknit.envelope.ids import IdMaker
from reknit.envelope.status import to_status
from reknit.errors import InvalidAttributes, LocalError, Refused, ReknitError
from reknit.event import Event
from reknit.outcome import Code

if TYPE_CHECKING:
    from reknit.client.session import Session

log = logging.getLogger("reknit.client")

TEXT_CHARS_MAX = 300
WORKING_S = 0.5
"""How often a service says of a request that it is still at it."""


class Request(msgspec.Struct, frozen=True):
    """What a handler gets."""

    payload: bytes
    attributes: Attributes
    deadline: float
    """When its ttl is over, in the time of the event loop."""
    attempt: int = 1
    """More than 1 if it was handed over before: by then it may have been carried out."""

    @property
    def remaining_s(self) -> float:
        """How long an answer still makes sense, seen from the loop that it came in on."""
        return self.deadline - asyncio.get_running_loop().time()


Answer = bytes | str | None
Handler = Callable[[Request], Awaitable[Answer]]


class Service:
    """Made by `session.serve(address, handler)`; requests are handled while in its `async with`.

    What a handler returns is the response. If it raises `Refused(code, text)` that is, and anything else it raises is
    UNKNOWN. At the request's deadline it is cancelled.
    """

    def __init__(
        self, session: Session, address: Address, handler: Handler, name: str, handlers_max: int
    ) -> None:
        self.address = address
        self._session = session
        self._handler = handler
        self._name = name or f"serve/{address.topic}"
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker()
        self._slots = asyncio.Semaphore(handlers_max)
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._events: dict[UUID, Event] = {}
        self._task: asyncio.Task[None] | None = None
        self.failure: ReknitError | None = None
        """Why it serves no more: another session took the address over, or may not be served."""

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
        """Return when it serves no more. Raises why, if it was not closed."""
        assert self._task is not None, "a service is used in an async with"
        await asyncio.wait({self._task})
        if self.failure is not None:
            raise self.failure

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        try:
            subscription = self._session.subscribe(self.address.topic, name=self._name, auto_accept=False)
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
                log.error("%s is served no more: %s", self.address, error)

    async def _extend_leases(self) -> None:
        """Say of what is handled that it is, where the node would give it to somebody else."""
        while True:
            await asyncio.sleep(WORKING_S)
            for event in self._events.values():
                event.in_progress()

    async def _end_handlers(self) -> None:
        """What is still handled is given back: it goes to who serves the address next."""
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
            if attributes.id in self._running:  # handed over again while it is handled
                continue
            await self._slots.acquire()
            self._events[attributes.id] = event
            self._running[attributes.id] = self._loop.create_task(self._handle(event, attributes))

    async def _handle(self, event: Event, attributes: Attributes) -> None:
        now_ms = time.time_ns() // 1_000_000
        remaining_s = (min(attributes.time_ms, now_ms) + attributes.ttl_ms - now_ms) / 1000
        request = Request(event.payload, attributes, self._loop.time() + remaining_s, event.attempt)
        try:
            if remaining_s <= 0:
                event.reject(Code.DEADLINE_EXCEEDED, "its ttl was over before it could be handled")
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
        """Answer a request, and accept it once the answer is kept."""
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
            await self._session.outlets.send(response, payload)
        except (LocalError, Refused) as error:
            log.error("the response of %s could not be sent: %s", self.address, error)
            event.reject(Code.INTERNAL, f"its response could not be sent: {error}")
        else:
            event.accept()


def _bytes(answer: Answer) -> bytes:
    if answer is None:
        return b""
    return answer.encode() if isinstance(answer, str) else bytes(answer)


def _failed(address: Address, error: Exception) -> tuple[Code, bytes]:
    """The code and the status with which a handler's failure is answered."""
    if isinstance(error, Refused):
        code = Code(error.code) if 0 < error.code <= max(Code) else Code.UNKNOWN
        return code, to_status(code, error.text)
    log.error("the handler of %s failed", address, exc_info=error)
    text = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
    return Code.UNKNOWN, to_status(Code.UNKNOWN, text)
