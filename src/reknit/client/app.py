"""Handlers: a program that is nothing but functions for events and requests, run until it is told to stop.

service = reknit.App(name="billing")

@service.on("orders/**", retries=5, concurrency=8)
async def book(event: reknit.Event) -> None: ...

@service.serve("prices.get")
async def price(request: reknit.Request) -> bytes: ...

service.run()
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar

import msgspec

from reknit.backoff import Backoff
from reknit.client.codecs import CodecOf
from reknit.client.event_loops import loop_factory
from reknit.client.options import SubscribeKeywords
from reknit.client.rpc.service import Handler
from reknit.client.session import Session, connect
from reknit.config import Config
from reknit.errors import LocalError
from reknit.outcome import Code
from reknit.queue_order import QueueOrder
from reknit.topic import Pattern

log = logging.getLogger("reknit.client")

TEXT_CHARS_MAX: Final = 300
WORKING_S: Final = 0.5
"""How often the node hears that handlers still run, so that no lease ends meanwhile."""

EventHandler = Callable[[Any], Any]
F = TypeVar("F", bound=EventHandler)
G = TypeVar("G", bound=Handler)


class Reject(Exception):
    """Raised by a handler: the event can't be processed, so it becomes a dead letter with this code and text."""

    def __init__(self, code: Code | str | int, text: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Retry(Exception):
    """Raised by a handler: try the event again, after `delay_s` at least. It counts as a retry, and logs no error."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(f"again in {delay_s} s")
        self.delay_s = delay_s


class _On(msgspec.Struct, frozen=True, kw_only=True):
    """One handler of events."""

    handler: EventHandler
    pattern: str
    queue: str
    retries: int
    concurrency: int
    codec: CodecOf[Any] | None
    order: QueueOrder
    history: bool
    backoff_s_min: float
    backoff_s_max: float


class App:
    """Handlers of events and requests. Start as many processes with the same `name` as the work needs.

    `on` and `serve` register functions, which may be plain or async: plain ones run in threads. `run()` connects, and
    handles events until SIGTERM, Ctrl-C or `stop()`. Then nothing new begins, and handlers that run have `grace_s` to
    end; what they do not finish is redelivered, to another process if there is one.
    """

    def __init__(
        self,
        url: str = "tcp://127.0.0.1:7440",
        *,
        name: str,
        config: Config | None = None,
        token: str = "",
        grace_s: float = 30.0,
    ) -> None:
        if not name:
            raise LocalError("an App needs a name: its queues and its subscriptions are durable under it")
        self.url, self.name = url, name
        self._config, self._token, self._grace_s = config, token, grace_s
        self._handlers: list[_On] = []
        self._services: dict[str, Handler] = {}
        self._stopping: asyncio.Event | None = None
        self._workers: list[_Worker] = []
        self.session: Session | None = None
        """The connection while it runs, for handlers that publish or request."""

    # -- registering

    def on(
        self,
        pattern: str,
        *,
        queue: str = "",
        retries: int = 3,
        concurrency: int = 1,
        codec: CodecOf[Any] | None = None,
        order: QueueOrder = "",
        history: bool = False,
        backoff_s_min: float = 0.5,
        backoff_s_max: float = 60.0,
    ) -> Callable[[F], F]:
        """Call the function with each event that matches the pattern.

        When it returns, the event is accepted. When it raises `Reject`, the event is a dead letter; with any other error
        it is retried up to `retries` times, with a pause that doubles from `backoff_s_min` to `backoff_s_max`, and is a
        dead letter then. All processes with the same `queue` (the app's name and the function's) share the events.
        `concurrency` is how many a process handles at a time: with 1, and `order`, in their order.
        """
        for what, value, low in (("retries", retries, 0), ("concurrency", concurrency, 1)):
            if type(value) is not int or value < low:
                raise LocalError(f"Invalid {what} {value!r}: it must be a whole number from {low}.")
        Pattern(pattern)

        def register(handler: F) -> F:
            name = queue or f"{self.name}.{getattr(handler, '__name__', 'handler')}"
            if any(one.queue == name for one in self._handlers):
                raise LocalError(f"queue {name!r} has a handler already: give this one another queue=…")
            self._handlers.append(
                _On(
                    handler=handler,
                    pattern=pattern,
                    queue=name,
                    retries=retries,
                    concurrency=concurrency,
                    codec=codec,
                    order=order,
                    history=history,
                    backoff_s_min=backoff_s_min,
                    backoff_s_max=backoff_s_max,
                )
            )
            return handler

        return register

    def serve(self, address: str) -> Callable[[G], G]:
        """Answer requests to a name, such as `prices.get`, or a uProtocol address. See `Session.serve`."""

        def register(handler: G) -> G:
            if address in self._services:
                raise LocalError(f"{address!r} has a handler already")
            self._services[address] = handler
            return handler

        return register

    # -- running

    def run(self) -> None:
        """Handle events and requests until SIGTERM, Ctrl-C or `stop()`."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, self.stop)
        await self.serve_until_stopped()

    def stop(self) -> None:
        """Begin nothing new, and end when the handlers that run have ended. Call it on the event loop."""
        for worker in self._workers:
            worker.stop()
        if self._stopping is not None:
            self._stopping.set()

    async def serve_until_stopped(self, ready: Callable[[], object] = bool) -> None:
        """The same as `run` within a running event loop; `ready` is called when all handlers are there."""
        if not self._handlers and not self._services:
            raise LocalError("this App has no handler: register some with on(…) or serve(…)")
        stopping = self._stopping = asyncio.Event()
        async with AsyncExitStack() as stack:
            session = connect(self.url, name=self.name, config=self._config, token=self._token)
            self.session = await stack.enter_async_context(session)
            made = [session.serve(address, handler) for address, handler in self._services.items()]
            services = [await stack.enter_async_context(one) for one in made]
            workers = self._workers = [_Worker(one, session, self._grace_s) for one in self._handlers]
            for worker in workers:
                await worker.start()
            ready()
            running = [asyncio.ensure_future(worker.work()) for worker in workers]
            serving = [asyncio.ensure_future(one.wait()) for one in services]
            asked = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait([asked, *running, *serving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended = [one for one in serving if one.done()]
                for one in (asked, *serving):
                    one.cancel()
                self.stop()
                results: list[Any] = await asyncio.gather(*running, *ended, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


class _Worker:
    """Runs one handler in one process."""

    def __init__(self, on: _On, session: Session, grace_s: float) -> None:
        self._on = on
        self._grace_s = grace_s
        self._slots = asyncio.Semaphore(on.concurrency)
        self._running: dict[asyncio.Task[None], Any] = {}
        """The event of each handler that runs."""
        options: SubscribeKeywords = {
            "queue": on.queue,
            "order": on.order,
            "history": on.history,
            "auto_accept": False,
        }
        if on.codec is None:
            self._events: Any = session.subscribe(on.pattern, **options)
        else:
            self._events = session.subscribe(on.pattern, codec=on.codec, **options)
        self._backoff = Backoff(on.backoff_s_min, on.backoff_s_max)
        self._is_async = inspect.iscoroutinefunction(on.handler)
        self._taking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Subscribe."""
        await self._events.__aenter__()
        self._taking = asyncio.create_task(self._take())

    async def work(self) -> None:
        """Return when it was stopped; raises why the subscription ended otherwise."""
        assert self._taking is not None, "started"
        leases = asyncio.create_task(self._extend_leases())
        try:
            await asyncio.wait([self._taking])
            if not self._taking.cancelled():
                self._taking.result()
        finally:
            if self._running:
                await asyncio.wait(self._running, timeout=self._grace_s)
            leases.cancel()
            await self._abandon()
            await self._events.__aexit__(None)

    def stop(self) -> None:
        """Take no more events."""
        if self._taking is not None:
            self._taking.cancel()

    async def _take(self) -> None:
        while True:
            await self._slots.acquire()
            try:
                event = await anext(self._events)
            except StopAsyncIteration:
                return
            task = asyncio.create_task(self._handle(event))
            self._running[task] = event
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slots.release()

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(WORKING_S)
            for event in self._running.values():
                event.in_progress()

    async def _abandon(self) -> None:
        """Give back what did not end in time: nobody knows how far it came, so the attempt counts."""
        for task, event in list(self._running.items()):
            log.warning("%s: event %s did not end within %g s", self._on.queue, event.id, self._grace_s)
            task.cancel()
            event.fail(0.0)
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _handle(self, event: Any) -> None:
        on = self._on
        try:
            result = on.handler(event) if self._is_async else await asyncio.to_thread(on.handler, event)
            if isinstance(result, Awaitable):
                await result
        except asyncio.CancelledError:
            raise
        except Reject as error:
            await event.reject(error.code, error.text)
        except Exception as error:
            await self._failed(event, error)
        else:
            await event.accept()

    async def _failed(self, event: Any, error: Exception) -> None:
        on, attempt = self._on, event.attempt
        text = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
        if attempt > on.retries:
            log.error(
                "%s: event %s failed %d times, now a dead letter", on.queue, event.id, attempt, exc_info=error
            )
            await event.reject(Code.ABORTED, text)
            return
        delay_s = error.delay_s if isinstance(error, Retry) else self._backoff.ceiling_s(attempt)
        level = logging.INFO if isinstance(error, Retry) else logging.WARNING
        told = (on.queue, event.id, delay_s, attempt, on.retries, text)
        log.log(level, "%s: event %s failed, again in %.1f s (%d of %d): %s", *told)
        await event.fail(delay_s)
