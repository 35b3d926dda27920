"""Services for programs without asyncio: each request is handled by a function in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.rpc.service import Handler, HandlerResult, Request, Service

SyncHandler = Callable[[Request], HandlerResult]


class SyncService:
    """Made by `session.serve(address, handler)`; requests are handled while in its `with`.

    A thread can't be cancelled: a result that comes after the request's deadline is dropped.
    """

    def __init__(
        self,
        thread: LoopThread,
        handler: SyncHandler,
        *,
        handlers_max: int,
        serve: Callable[[Handler], Service],
    ) -> None:
        self._thread = thread
        self._threads = ThreadPoolExecutor(handlers_max, thread_name_prefix="reknit-serve")
        self._handler = handler
        self._service: Service = thread.call(lambda: serve(self._handle))

    async def _handle(self, request: Request) -> HandlerResult:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, request)

    def __enter__(self) -> SyncService:
        self._thread.run(self._service.__aenter__())
        return self

    def __exit__(self, *args: object) -> None:
        self._thread.run(self._service.__aexit__())
        self._threads.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Return when the service has stopped. Raises the reason, unless it was closed."""
        self._thread.run(self._service.wait())
