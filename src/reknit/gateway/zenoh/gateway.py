"""The Zenoh gateway: a node joins a Zenoh network, and events flow both ways.

What Zenoh's publishers put becomes events under the same key, with their source information; what is published here is
put there. Patterns are Zenoh's key expressions on both sides. A gap in an advanced publisher's numbers is recovered
from its cache, and its history is taken when it appears. A Zenoh subscriber that recovers asks for our numbers and gets
them from the journal.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import zenoh

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.errors import InvalidConfig, ReknitError
from reknit.gateway.zenoh.samples import (
    WRAP,
    Numbering,
    Origin,
    Taken,
    is_from_zenoh,
    merge,
    sn_of,
    sn_range,
    source_of,
)
from reknit.gateway.zenoh.threads import call, leave
from reknit.ledger import Stream
from reknit.node.api import GatewayNode
from reknit.transport import memory

log = logging.getLogger("reknit.zenoh")

PENDING_MAX = 100_000
"""Samples that wait to be taken; then Zenoh waits, or drops, as its publishers chose."""
PUBLISHERS_MAX = 4096
QUERY_S = 5.0
RETRY_S = 0.5
ANSWERS_MAX = 64
"""So many queries are answered at once; a subscriber that asks meanwhile asks again."""
ASKED = re.compile(r"/@adv/[^/]+/[^/]+/([^/]+)/")
"""The entity in a query of an advanced subscriber: KEY/@adv/KIND/SESSION/ENTITY/…"""


def zenoh_config(listen: Sequence[str], connect: Sequence[str], mode: str = "peer") -> zenoh.Config:
    """Zenoh's settings: exactly these endpoints, found by nobody."""
    config = zenoh.Config()
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    try:
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
    except zenoh.ZError as error:
        raise InvalidConfig("recovery.zenoh_listen", f"{listen} {connect}", f"is refused: {error}") from None
    return config


class ZenohGateway:
    """Joins the node's topics with a Zenoh network, while the node runs."""

    def __init__(self, node: GatewayNode) -> None:
        settings = node.config.recovery
        self._node = node
        self._pattern = settings.zenoh_pattern
        self._config = zenoh_config(settings.zenoh_listen, settings.zenoh_connect)
        self._numbering = Numbering(node.name)
        self._feed = node.local_publisher("zenoh", lambda batch: None, self._gap)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._pending: list[Taken] = []
        self._joining: dict[str, list[Taken]] = {}
        """What came of keys whose publishers' history is still on its way."""
        self._asking: dict[str, int] = {}
        self._news = asyncio.Event()
        self._publishers: dict[Stream, zenoh.Publisher] = {}
        self._by_eid: dict[str, Stream] = {}
        self._gaps: dict[bytes, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stops: list[Callable[[], None]] = []
        self._session: zenoh.Session | None = None
        self._declared: list[Any] = []
        self._is_leaving = threading.Event()
        self._answering = threading.Semaphore(ANSWERS_MAX)
        self._declaring = threading.Lock()
        self.taken = self.put = self.lost = 0
        """Events from Zenoh, to Zenoh, and those that nobody there had any more."""

    # -- life

    async def start(self) -> None:
        """Join; peers may come later."""
        await self._feed.open()
        await call(self._join)
        self._tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._give())]

    def _join(self) -> None:
        """Blocking: open a session, then declare what we take."""
        session = self._session = zenoh.open(self._config)
        self._zid = str(session.info.zid())
        pattern, remote = self._pattern.text, zenoh.Locality.REMOTE
        liveliness = session.liveliness()
        self._declared += [
            session.declare_subscriber(pattern, self._sample, allowed_origin=remote),
            session.declare_queryable(f"{pattern}/@adv/pub/{self._zid}/**", self._asked),
            liveliness.declare_subscriber(f"{pattern}/@adv/pub/**", self._appeared, history=True),
        ]

    async def stop(self) -> None:
        """Leave. Whatever Zenoh's threads are at, this ends."""
        self._is_leaving.set()
        with self._lock:
            self._pending = []
            self._lock.notify_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            declared = [*self._declared, *self._publishers.values()]
            try:
                await call(leave, self._session, declared)
            except (TimeoutError, zenoh.ZError) as error:
                log.warning("Zenoh's session is left open: %s", str(error) or "it does not close")
        await self._feed.close()
        for stop in self._stops:
            stop()

    # -- from Zenoh

    def _sample(self, sample: zenoh.Sample) -> None:
        """On one of Zenoh's threads: queue it, and wait while there are too many."""
        taken = take_sample(sample)
        if taken.origin is not None and taken.origin.zid == self._zid:
            return
        with self._lock:
            if taken.key in self._joining:
                self._joining[taken.key].append(taken)
                return
        self._queue([taken])

    def _queue(self, samples: list[Taken]) -> None:
        with self._lock:
            while len(self._pending) >= PENDING_MAX and not self._is_leaving.is_set():
                self._lock.wait(1.0)
            if self._is_leaving.is_set():
                return
            was_empty = not self._pending
            self._pending += samples
        if was_empty and samples:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._news.set)

    async def _take(self) -> None:
        """Bring what was queued into the node, in order."""
        while True:
            await self._news.wait()
            self._news.clear()
            with self._lock:
                samples, self._pending = self._pending, []
                self._lock.notify_all()
            for key in sorted(self._numbering.unknown_keys(samples)):
                last = await self._feed.last_seq(source_of(key, None, self._node.name), key)
                self._numbering.next_seqs[key] = last + 1
            self.taken += len(samples)
            self._feed.put(self._numbering.batches(samples))
            await self._feed.room()

    def _gap(self, batch: Batch, seq: int) -> None:
        """The node misses `[seq, batch.first)`: the publisher's cache may have it."""
        if self._gaps.get(batch.source) != seq:
            self._gaps[batch.source] = seq
            self._tasks.append(asyncio.create_task(self._recover(batch, seq)))
            self._tasks = [task for task in self._tasks if not task.done()]

    async def _recover(self, batch: Batch, seq: int) -> None:
        known = self._numbering.origins.get(batch.source)
        found: list[Batch] = []
        if known is not None:
            key, origin = known
            numbers = f"{sn_of(seq)}..{sn_of(batch.first - 1)}"
            selector = f"{key}/@adv/*/{origin.zid}/{origin.eid}/**?_anyke;_sn={numbers}"
            samples = await call(self._query, selector)
            found = [
                one.cut(seq, batch.first)
                for one in self._numbering.batches(sorted(samples, key=lambda sample: sample.sn))
                if one.source == batch.source and one.first < batch.first and seq < one.stop
            ]
        self.lost += self._feed.fill(batch, seq, found, "nobody in the Zenoh network has it any more")

    def _appeared(self, token: zenoh.Sample) -> None:
        """On one of Zenoh's threads: an advanced publisher is there. Take what it holds, before what it puts next."""
        text = str(token.key_expr)
        if self._is_leaving.is_set():
            return
        if token.kind == zenoh.SampleKind.PUT and f"/{self._zid}/" not in text:
            key = text.partition("/@adv/")[0]
            with self._lock:
                self._joining.setdefault(key, [])
                self._asking[key] = self._asking.get(key, 0) + 1
            threading.Thread(target=self._take_history, args=(key, text), daemon=True).start()

    def _take_history(self, key: str, token: str) -> None:
        samples = self._query(f"{token}?_anyke")
        with self._lock:
            self._joining[key] = samples + self._joining[key]
            self._asking[key] -= 1
            ready = merge(self._joining.pop(key)) if not self._asking[key] else []
        self._queue(ready)

    def _query(self, selector: str) -> list[Taken]:
        """Blocking: all that anyone replies."""
        assert self._session is not None
        try:
            replies = self._session.get(
                selector,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=QUERY_S,
            )
            return [take_sample(reply.ok) for reply in replies if reply.ok is not None]
        except zenoh.ZError as error:
            log.debug("%s: %s", selector, error)
            return []

    # -- to Zenoh

    async def _give(self) -> None:
        """Put what is published here, and accept it once it is put."""
        url = f"memory://{id(self._node):x}/zenoh-out"
        self._stops.append(memory.listen(url, self._node))
        while True:
            try:
                async with Session(url, "", self._node.config) as session:
                    wanted = session.subscribe(
                        self._pattern.text, name=f"zenoh/{self._node.name}", auto_accept=False
                    )
                    async with wanted as events:
                        while batches := await events.take_all():
                            ours = [batch for batch in batches if not is_from_zenoh(batch.source)]
                            if ours:
                                await call(self._put, ours)
                            for batch in batches:
                                batch.accept()
            except (ReknitError, TimeoutError, zenoh.ZError) as error:
                log.warning("the way to Zenoh waits: %s", str(error) or "Zenoh does not take events")
            await asyncio.sleep(RETRY_S)

    def _put(self, batches: Iterable[Batch]) -> None:
        """Blocking: put every event with its source information; nothing any more once we leave."""
        for batch in batches:
            publisher = self._publisher((batch.topic, batch.source))
            put, id_, number = publisher.put, publisher.id, sn_of(batch.first)
            for payload in batch.payloads():
                if self._is_leaving.is_set():
                    return
                put(payload, source_info=zenoh.SourceInfo(id_, number))
                number = (number + 1) % WRAP
            self.put += batch.count

    def _publisher(self, stream: Stream) -> zenoh.Publisher:
        publisher = self._publishers.get(stream)
        if publisher is not None:
            return publisher
        assert self._session is not None
        with self._declaring:
            publisher = self._publishers.get(stream)
            if publisher is None:
                block = zenoh.CongestionControl.BLOCK
                publisher = self._session.declare_publisher(stream[0], congestion_control=block)
                self._publishers[stream] = publisher
                self._by_eid[str(publisher.id.eid)] = stream
                if len(self._publishers) > PUBLISHERS_MAX:
                    oldest = self._publishers.pop(next(iter(self._publishers)))
                    self._by_eid.pop(str(oldest.id.eid), None)
                    oldest.undeclare()  # type: ignore[no-untyped-call]
        return publisher

    def _asked(self, query: zenoh.Query) -> None:
        """On one of Zenoh's threads: a subscriber there misses numbers of ours. They are put once more.

        A reply can't carry source information from Python; a sample that is put can, and comes before the query ends.
        """
        if self._is_leaving.is_set() or not self._answering.acquire(blocking=False):
            query.drop()  # type: ignore[no-untyped-call]
            return
        threading.Thread(target=self._answer, args=(query,), name="reknit-zenoh", daemon=True).start()

    def _answer(self, query: zenoh.Query) -> None:
        """On a thread of its own, as putting may block: Zenoh's threads go on."""
        try:
            with query:
                asked = ASKED.search(str(query.key_expr))
                stream = self._by_eid.get(asked[1]) if asked is not None else None
                bounds = sn_range(str(query.parameters))
                if stream is not None and bounds is not None:
                    found = asyncio.run_coroutine_threadsafe(self._find(stream, *bounds), self._loop)
                    self._put(found.result(QUERY_S))
        except (TimeoutError, RuntimeError, zenoh.ZError) as error:  # the loop or the session is gone
            log.debug("a query was not answered: %s", error)
        finally:
            self._answering.release()

    async def _find(self, stream: Stream, start: int, stop: int) -> list[Batch]:
        last = self._node.journal.sources(stream[0]).get(stream[1], 0)
        base = last - last % WRAP
        return self._node.find(*stream, base + start, min(base + stop, last + 1)) if start <= last else []


def take_sample(sample: zenoh.Sample) -> Taken:
    """A sample as a value of our own."""
    info, stamp, attachment = sample.source_info, sample.timestamp, sample.attachment
    headers: dict[str, str] = {}
    if sample.kind == zenoh.SampleKind.DELETE:
        headers["zenoh-kind"] = "delete"
    if attachment is not None:
        headers["zenoh-attachment"] = base64.b64encode(attachment.to_bytes()).decode()
    time_us = int(stamp.get_time().timestamp() * 1e6) if stamp is not None else time.time_ns() // 1000
    origin = Origin(str(info.source_id.zid), int(info.source_id.eid)) if info is not None else None
    sn = int(info.source_sn) if info is not None else 0
    return Taken(str(sample.key_expr), sample.payload.to_bytes(), time_us, origin, sn, headers)
