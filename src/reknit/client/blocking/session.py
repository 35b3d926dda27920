"""The blocking face of the client: the same session, run by a loop in a thread of its own.

Threads are crossed per batch, not per event: what is published gathers on the caller's side until the loop comes to
take all of it, received batches come over as many at a time as there are, and so do outcomes.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from reknit.address import Address
from reknit.batch import PRIORITY_DEFAULT
from reknit.checkpoint import Checkpoint
from reknit.client.blocking.group import SyncGroup
from reknit.client.blocking.outcomes import SyncOutcomePublisher
from reknit.client.blocking.publisher import SyncPublisher
from reknit.client.blocking.service import SyncHandler, SyncService
from reknit.client.blocking.subscription import SyncSubscription
from reknit.client.event_loops import loop_factory
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.rpc.requests import Reply
from reknit.client.session import Session, connect
from reknit.client.subscribe.subscription import OnLost
from reknit.config import Config, MulticastSettings
from reknit.envelope.attributes import Attributes
from reknit.errors import Closed, LocalError
from reknit.frame import Buffer

T = TypeVar("T")

STOP_S = 10.0
"""How long closing waits for the loop."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self._thread = threading.Thread(target=self._work, name="reknit-loop", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, program: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The program's result, run on the loop. An interrupted caller cancels it."""
        if threading.current_thread() is self._thread or self.loop.is_closed():
            program.close()
            if self.loop.is_closed():
                raise Closed("the session", "connect again")
            raise LocalError("a blocking call from a callback would wait for itself: use another thread")
        future = asyncio.run_coroutine_threadsafe(program, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """A plain function's result, called on the loop."""

        async def program() -> T:
            return function()

        return self.run(program())

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, and don't wait for it."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise Closed("the session", "connect again") from None

    def stop(self) -> None:
        """End loop and thread."""
        if self.loop.is_closed():
            return
        try:
            self.run(self._cancel_all(), STOP_S)
        except TimeoutError:
            return  # something blocks the loop; its thread ends with the process
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_S)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SyncSession:
    """Made by `reknit.connect_sync`; open while in its `with`. Any number of threads may use it."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()
        self._publishers: list[SyncPublisher] = []
        self._by_topic: dict[str, SyncPublisher] = {}

    def open(self) -> SyncSession:
        """Connect. Raises `NotConnected` when no node answers in time."""
        thread = LoopThread()
        try:
            self._session = thread.run(self._open())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    async def _open(self) -> Session:
        return await self._make().open()

    def close(self) -> None:
        """Return when everything published is kept, then part."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if self._session.is_connected:
                for publisher in self._publishers:
                    publisher.flush()
            thread.run(self._session.close())
        finally:
            thread.stop()

    def __enter__(self) -> SyncSession:
        return self.open()

    def __exit__(self, *args: object) -> None:
        self.close()

    @property
    def _loop(self) -> LoopThread:
        if self._thread is None:
            raise Closed("the session", "use it in a with statement, or call open()")
        return self._thread

    @property
    def url(self) -> str:
        return self._session.url

    @property
    def is_connected(self) -> bool:
        return self._thread is not None and self._session.is_connected

    # -- publishing

    def publisher(
        self,
        topic: str,
        *,
        wait: bool = True,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        source: bytes | None = None,
        cache: bool = True,
        history: int | None = None,
        heartbeat_s: float | None = None,
        is_heartbeat_periodic: bool = False,
        stored_by: int = 1,
        resend_released: bool = False,
        outcome: bool = False,
    ) -> SyncPublisher:
        """A publisher on one topic, with a source of its own; see `Session.publisher`."""
        settings: dict[str, Any] = {"wait": wait, "ttl_ms": ttl_ms, "priority": priority, "source": source}
        settings |= {"cache": cache, "history": history, "heartbeat_s": heartbeat_s, "stored_by": stored_by}
        settings["is_heartbeat_periodic"] = is_heartbeat_periodic
        settings |= {"resend_released": resend_released, "outcome": outcome}
        made, limits = (
            self._loop.call(lambda: self._session.publisher(topic, **settings)),
            self._session.config.limits,
        )
        if isinstance(made, OutcomePublisher):
            publisher: SyncPublisher = SyncOutcomePublisher(self._loop, made, limits)
        else:
            publisher = SyncPublisher(self._loop, made, limits)
        self._publishers = [one for one in self._publishers if not one.is_closed] + [publisher]
        return publisher

    def _publisher_of(self, topic: str) -> SyncPublisher:
        with self._lock:
            publisher = self._by_topic.get(topic)
            if publisher is None:
                publisher = self._by_topic[topic] = self.publisher(topic)
        return publisher

    def publish(self, topic: str, payload: Buffer | str) -> None:
        """Publish one event; returns when it is kept."""
        self._publisher_of(topic).publish(payload)

    def publish_many(self, topic: str, payloads: Iterable[Buffer | str]) -> None:
        """Publish many events in one call; returns when all are kept."""
        self._publisher_of(topic).publish_many(payloads)

    def publish_event(self, attributes: Attributes, payload: bytes) -> None:
        """Publish one event with attributes of uProtocol; returns when it is kept."""
        self._loop.run(self._publish_event(attributes, payload))

    async def _publish_event(self, attributes: Attributes, payload: bytes) -> None:
        await self._session.publish_event(attributes, payload)

    # -- requests

    def request(
        self,
        address: Address | str,
        payload: bytes | str = b"",
        *,
        ttl_ms: int | None = None,
        priority: int | None = None,
        **attributes: Any,
    ) -> Reply:
        """Ask whoever serves the address, and wait for the reply; see `Session.request`."""
        asked = self._session.request(address, payload, ttl_ms=ttl_ms, priority=priority, **attributes)
        return self._loop.run(asked)

    def serve(
        self, address: Address | str, handler: SyncHandler, *, name: str = "", handlers_max: int | None = None
    ) -> SyncService:
        """Answer requests to the address with what the handler returns, while in its `with`; see `Session.serve`.

        Each is handled in a thread of its own, `handlers_max` at a time.
        """
        limit = self._session.config.rpc.handlers_max if handlers_max is None else handlers_max
        return SyncService(self._loop, self._session, address, handler, name, limit)

    # -- groups

    def group(
        self,
        name: str,
        *,
        member: str = "",
        seeds: Sequence[str] | None = None,
        settings: MulticastSettings | None = None,
        discard_own: bool = False,
        is_given: bool = False,
        is_journaled: bool = True,
    ) -> SyncGroup:
        """A member of a group, to be used with `with`; see `Session.group`."""
        how: dict[str, Any] = {"member": member, "seeds": seeds, "settings": settings, "is_given": is_given}
        how |= {"discard_own": discard_own, "is_journaled": is_journaled}
        return SyncGroup(self._loop, self._loop.call(lambda: self._session.group(name, **how)))

    # -- subscribing

    def subscribe(
        self,
        pattern: str,
        *,
        name: str = "",
        history: bool | int | float | timedelta = False,
        start: Checkpoint | None = None,
        auto_accept: bool = True,
        on_lost: OnLost | None = None,
        idle_s: float | None = None,
        caches: Sequence[str] | None = None,
        recover: bool = True,
        query_s: float | None = None,
        streams: bool = False,
    ) -> SyncSubscription:
        """Events that match the pattern, in order per source; see `Session.subscribe`.

        With `idle_s` it ends when nothing has come for so long. `on_lost` is called on the loop's thread. One thread
        at a time takes events; their outcomes may come from any. With `streams`, `events.pieces(event)` reads one.
        """
        settings: dict[str, Any] = {"name": name, "history": history, "start": start, "on_lost": on_lost}
        settings |= {"caches": caches, "recover": recover, "query_s": query_s, "streams": streams}
        made = self._loop.call(lambda: self._session.subscribe(pattern, auto_accept=False, **settings))
        return SyncSubscription(self._loop, made, auto_accept, idle_s)

    # -- asking

    def ask(self, what: str, **args: Any) -> Any:
        """A question to the node (`status`, `ledger`, …); gives the answer's body."""
        return self._loop.run(self._session.ask(what, **args))

    def status(self) -> dict[str, Any]:
        """How the node is: journal, topics, rates, subscribers."""
        return self._loop.run(self._session.status())

    def ledger(self) -> list[dict[str, Any]]:
        """published = accepted + dead-lettered + lost + in flight, per durable subscriber and topic."""
        return self._loop.run(self._session.ledger())

    def pause(self, pattern: str) -> list[str]:
        """Hand out nothing on topics that match, until `resume`; gives all patterns that are paused."""
        return self._loop.run(self._session.pause(pattern))

    def resume(self, pattern: str) -> list[str]:
        """Go on with what `pause` stopped; gives the patterns that are still paused."""
        return self._loop.run(self._session.resume(pattern))


def connect_sync(
    url: str = "tcp://127.0.0.1:7440",
    *,
    name: str = "",
    config: Config | None = None,
    token: str = "",
    tls: ssl.SSLContext | None = None,
    wait_s: float = 5.0,
    address: Address | str = "",
) -> SyncSession:
    """A blocking session with the node at `url`, to be used with `with`.

    With a `name`, what this session publishes keeps its identity across restarts of the program. Responses to its
    requests go to `address`, or to one that is made up from the name.
    """
    settings: dict[str, Any] = {"name": name, "config": config, "token": token, "tls": tls}
    return SyncSession(lambda: connect(url, **settings, wait_s=wait_s, address=address))
