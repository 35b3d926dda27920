"""Services for programs without asyncio: each request is handled by a function in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reknit.address import Address
from reknit.client.rpc.service import Answer, Request, Service

if TYPE_CHECKING:
    from reknit.client.blocking.session import LoopThread
    from reknit.client.session import Session

SyncHandler = Callable[[Request], Answer]


class SyncService:
    """Made by `session.serve(address, handler)`; requests are handled while in its `with`.

    A thread can't be cancelled: what a handler returns after the request's deadline is dropped.
    """

    def __init__(
        self,
        thread: LoopThread,
        session: Session,
        address: Address | str,
        handler: SyncHandler,
        name: str,
        handlers_max: int,
    ) -> None:
        self._thread = thread
        self._threads = ThreadPoolExecutor(handlers_max, thread_name_prefix="reknit-serve")
        self._handler = handler
        self._service: Service = thread.call(
            lambda: session.serve(address, self._handle, name=name, handlers_max=handlers_max)
        )

    async def _handle(self, request: Request) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, request)

    def __enter__(self) -> SyncService:
        self._thread.run(self._service.__aenter__())
        return self

    def __exit__(self, *args: object) -> None:
        self._thread.run(self._service.__aexit__())
        self._threads.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Return when it serves no more. Raises why, if it was not closed."""
        self._thread.run(self._service.wait())
