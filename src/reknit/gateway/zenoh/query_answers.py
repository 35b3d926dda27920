"""Answers to Zenoh subscribers that miss events of ours: they get them from the journal."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable

import zenoh

from reknit.batch import Batch
from reknit.gateway.zenoh.publishers import ZenohPublishers
from reknit.gateway.zenoh.samples import sn_range
from reknit.gateway.zenoh.session import QUERY_S, ZenohSession
from reknit.ledger import Series

log = logging.getLogger("reknit.zenoh")

ANSWERS_MAX = 64
"""How many queries are answered at once. A subscriber whose query is dropped asks again."""
ENTITY = re.compile(r"/@adv/[^/]+/[^/]+/([^/]+)/")
"""The entity in a query of an advanced subscriber: KEY/@adv/KIND/SESSION/ENTITY/…"""

Find = Callable[[Series, int, int], list[Batch]]
"""The batches of a series with seqs `[start, stop)` as Zenoh counts them. Called on the event loop."""


class QueryAnswers:
    """Puts missed events again.

    A reply can't carry source information from Python. A sample that is put can, and arrives before the query ends.
    """

    def __init__(self, session: ZenohSession, publishers: ZenohPublishers, find: Find) -> None:
        self._session = session
        self._publishers = publishers
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._answering = threading.Semaphore(ANSWERS_MAX)

    def answer(self, query: zenoh.Query) -> None:
        """On one of Zenoh's threads: answer on a new thread, as putting may block."""
        if self._session.is_leaving or not self._answering.acquire(blocking=False):
            query.drop()  # type: ignore[no-untyped-call]
            return
        threading.Thread(target=self._answer, args=(query,), name="reknit-zenoh", daemon=True).start()

    def _answer(self, query: zenoh.Query) -> None:
        try:
            with query:
                entity = ENTITY.search(str(query.key_expr))
                series = self._publishers.series(entity[1]) if entity is not None else None
                bounds = sn_range(str(query.parameters))
                if series is not None and bounds is not None:
                    found = asyncio.run_coroutine_threadsafe(self._found(series, *bounds), self._loop)
                    self._publishers.put(found.result(QUERY_S))
        except (TimeoutError, RuntimeError, zenoh.ZError) as error:  # the event loop or the session is gone
            log.debug("a query was not answered: %s", error)
        finally:
            self._answering.release()

    async def _found(self, series: Series, start: int, stop: int) -> list[Batch]:
        return self._find(series, start, stop)
