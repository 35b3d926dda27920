"""Requests to addresses, and services behind them.

A request waits for the first response to its id: from a service, or from a node that could not deliver it. A service
handles each request before its deadline, and the request counts as accepted once its response is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import xxhash

from reknit.address import Address
from reknit.batch import Batch
from reknit.client.rpc_outlet import Kept
from reknit.envelope.attributes import Attributes, Format, Kind, Priority, check, response_to
from reknit.envelope.columns import read_attributes
from reknit.envelope.ids import IdMaker
from reknit.envelope.status import from_status, to_status
from reknit.errors import Closed, Full, InvalidAttributes, LocalError, Refused, ReknitError, RequestFailed
from reknit.event import Event
from reknit.outcome import Code
from reknit.protocol.rpc import Answered, Failed, Requests, Sent

if TYPE_CHECKING:
    from reknit.client.session import Session

log = logging.getLogger("reknit.client")

CLIENT_ENTITY = 0xFFFE
"""The service number in the addresses of sessions that were given none."""
TEXT_CHARS_MAX = 300
WORKING_S = 0.5
"""How often a service says of a request that it is still at it."""


class Reply(msgspec.Struct, frozen=True):
    """What came back for a request that went well."""

    payload: bytes
    attributes: Attributes


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


def default_address(name: str, id_: bytes) -> Address:
    """Where a session gets its responses that was given no address: the same one for the same name.

    >>> str(default_address("", bytes(8)))
    'up://0000000000000000/FFFE/1/0'
    """
    unique = xxhash.xxh3_64_digest(name.encode()) if name else id_
    return Address(unique.hex(), CLIENT_ENTITY, 1, 0)


class Caller:
    """The requests of one session."""

    def __init__(self, session: Session) -> None:
        self.requests = Requests()
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker()
        self._waiting: dict[UUID, tuple[asyncio.Future[Reply], Attributes]] = {}
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def request(self, attributes: Attributes, payload: bytes) -> Reply:
        """The reply to a request. Raises `RequestFailed`, and `Full` at the limit."""
        requests_max = self._session.config.rpc.requests_max
        if len(self.requests) >= requests_max:
            raise Full(f"{requests_max} requests wait for their responses", "rpc.requests_max")
        due = self._loop.time() + attributes.ttl_ms / 1000 + self._session.config.rpc.grace_s
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[attributes.id] = (future, attributes)
        self.requests.receive(Sent(attributes.id, due), "", self._loop.time())
        self._perform()
        try:
            await self._listen(future)
            if not future.done():
                sent = self._session.outlets.send(attributes, payload)
                sent.add_done_callback(partial(self._sent, attributes.id))
            return await future
        finally:
            self._waiting.pop(attributes.id, None)
            self._fail([attributes.id], Code.CANCELLED, "given up")

    def make(
        self, address: Address, ttl_ms: int | None, priority: int | None, more: dict[str, object]
    ) -> Attributes:
        """The attributes of a request, checked. Raises `InvalidAttributes`."""
        return check(
            Attributes(
                id=self._ids(),
                type=Kind.REQUEST,
                source=self._session.address,
                sink=address,
                priority=Priority.CS4 if priority is None else Priority(priority),
                ttl_ms=self._session.config.rpc.ttl_ms if ttl_ms is None else ttl_ms,
                **more,  # type: ignore[arg-type]
            )
        )

    # -- sending

    def _sent(self, id_: UUID, kept: Kept) -> None:
        """The node took a request in, or did not: that ends it here, where it came from."""
        error = None if kept.cancelled() else kept.exception()
        if isinstance(error, Refused):
            self._fail([id_], error.code, error.text)
        elif error is not None:
            self._fail([id_], Code.UNAVAILABLE, str(error))

    def _fail(self, ids: list[UUID], code: int, text: str) -> None:
        self.requests.receive(Failed(ids, code, text), "", self._loop.time())
        self._perform()

    # -- responses

    async def _listen(self, future: asyncio.Future[Reply]) -> None:
        """Return when responses can come, or the request has ended without."""
        if self._ready is None or (self._ready.done() and self._ready.exception() is not None):
            self._ready = self._loop.create_future()
            self._task = self._loop.create_task(self._receive(self._ready))
        if not self._ready.done():
            either: set[asyncio.Future[Any]] = {self._ready, future}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done() and (error := self._ready.exception()) is not None:
            raise error

    async def _receive(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._session.subscribe(self._session.address.topic) as events:
                ready.set_result(None)
                async for batch in events.batches():
                    self._take(batch)
            error: ReknitError = Closed("the session")
        except ReknitError as caught:
            error = caught
        if not ready.done():
            ready.set_exception(error)
            ready.exception()  # retrieved here: whoever waits for it may have gone
        self._ready = None
        self._fail(list(self._waiting), getattr(error, "code", Code.UNAVAILABLE), str(error))

    def _take(self, batch: Batch) -> None:
        try:
            several = read_attributes(batch)
        except InvalidAttributes as error:
            log.warning("%s got events that are no responses: %s", self._session.address, error)
            return
        for attributes, payload in zip(several, batch.payloads(), strict=False):
            self.requests.receive(Answered(attributes, payload), "", self._loop.time())
        self._perform()

    # -- the machine's side

    def _perform(self) -> None:
        for effect in self.requests.take_effects():
            waiting = self._waiting.pop(effect.id, None)
            if waiting is not None and not waiting[0].done():
                _settle(*waiting, effect.answer)
        due = self.requests.next_deadline()
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.requests.tick(self._loop.time())
        self._perform()

    async def close(self) -> None:
        """End everything that waits."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for future, _ in list(self._waiting.values()):
            if not future.done():
                future.set_exception(Closed("the session", "connect again"))


def _settle(future: asyncio.Future[Reply], request: Attributes, answer: Answered | Failed) -> None:
    address = str(request.sink)
    if isinstance(answer, Failed):
        future.set_exception(RequestFailed(answer.code, answer.text, address))
        return
    code = answer.attributes.commstatus or Code.OK
    if code is Code.OK:
        future.set_result(Reply(answer.payload, answer.attributes))
        return
    status = from_status(answer.payload)
    text = status[1] if status is not None and status[0] == code else code.name
    future.set_exception(RequestFailed(code, text, address, answer.payload))


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


def address_of(address: Address | str) -> Address:
    """An address, also from its text."""
    return Address.parse(address) if isinstance(address, str) else address
