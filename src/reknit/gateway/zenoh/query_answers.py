"""Answers to queries from the Zenoh network: missed events, history, and what is on a topic. All is in the journal."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import zenoh

from reknit import environment
from reknit.batch import Batch
from reknit.gateway.zenoh.attributes import SEQ, SOURCE, puts_of
from reknit.gateway.zenoh.history import Part, ZenohHistory
from reknit.gateway.zenoh.keys import wanted
from reknit.gateway.zenoh.publishers import ZenohPublishers
from reknit.gateway.zenoh.session import QUERY_S, ZenohSession
from reknit.gateway.zenoh.threads import start

log = logging.getLogger("reknit.zenoh")

ANSWERS_MAX: Final = 64
"""How many queries are answered at once. Others wait."""
T = TypeVar("T")


class QueryAnswers:
    """Answers each query on a thread of its own, as putting and replying may block."""

    def __init__(self, session: ZenohSession, publishers: ZenohPublishers, history: ZenohHistory) -> None:
        self._session = session
        self._publishers = publishers
        self._history = history
        self._loop = asyncio.get_running_loop()
        self._answering = threading.Semaphore(ANSWERS_MAX)

    def recover(self, query: zenoh.Query) -> None:
        """On a reader's thread: an advanced subscriber asks for what it missed, or for history."""
        self._start(query, self._put_again)

    def select(self, query: zenoh.Query) -> None:
        """On a reader's thread: somebody asks what is on a topic."""
        self._start(query, self._reply)

    def _start(self, query: zenoh.Query, answer: Callable[[zenoh.Query], None]) -> None:
        while not self._session.is_leaving:
            if self._answering.acquire(timeout=0.2):
                break
        else:
            query.drop()  # type: ignore[no-untyped-call]
            return
        start(self._answer, query, answer)

    def _answer(self, query: zenoh.Query, answer: Callable[[zenoh.Query], None]) -> None:
        try:
            with query:
                answer(query)
        except (TimeoutError, RuntimeError, zenoh.ZError) as error:  # the event loop or the session is gone
            log.debug("a query was not answered: %s", error)
        finally:
            self._answering.release()

    def _put_again(self, query: zenoh.Query) -> None:
        """A reply can't carry source information from Python. A sample that is put can, and precedes the query's end."""
        asked = wanted(str(query.key_expr), str(query.parameters))
        if asked is None:
            return
        since_us = environment.time_us() - int(asked.age_s * 1e6) if asked.age_s else 0
        for one in self._on_loop(self._history.parts(asked)):
            part: Part | None = one
            while part is not None:
                found, part = self._on_loop(self._history.read(part, since_us))
                self._publishers.put_again(found)

    def _reply(self, query: zenoh.Query) -> None:
        parameters, now_us = str(query.parameters), environment.time_us()
        for topic in self._on_loop(self._history.topics(str(query.key_expr))):
            for batch in self._on_loop(self._history.select(topic, parameters, now_us)):
                self._reply_batch(query, batch)

    def _reply_batch(self, query: zenoh.Query, batch: Batch) -> None:
        for seq, (payload, is_delete, _, options) in enumerate(puts_of(batch), batch.first):
            if "attachment" not in options:
                identity = {SOURCE: batch.source.hex(), SEQ: str(seq)}
                options["attachment"] = zenoh.ext.z_serialize(identity)
            if is_delete:
                query.reply_del(batch.topic, **options)
            else:
                query.reply(batch.topic, payload, **options)

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(QUERY_S)
