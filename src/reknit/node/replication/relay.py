"""A relay: a node keeps what another node keeps, with every event's source and seq.

It is a durable subscriber there, by its own name: an event is accepted there once it is durable here, so nothing is
missed whichever of the two is killed. What this node lacks nevertheless is recovered from the other's journal, or from
whoever else it knows; what nobody has is lost, and its subscribers are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import InvalidConfig, LocalError, ReknitError
from reknit.node.replication.local_publisher import Feed
from reknit.protocol.machine import Peer
from reknit.seqset import Range
from reknit.topic import Pattern
from reknit.transport.tcp import parse_url
from reknit.wire.recovery import Span

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

RETRY_S = 0.5


def parse_relay(text: str) -> tuple[str, Pattern]:
    """The address and the pattern of a relay.

    >>> parse_relay("tcp://10.0.0.7:7440=plant/**")
    ('tcp://10.0.0.7:7440', Pattern(text='plant/**'))
    >>> parse_relay("tcp://10.0.0.7:7440")[1].text
    '**'
    """
    url, _, pattern = text.partition("=")
    try:
        parse_url(url)
        return url, Pattern(pattern or "**")
    except LocalError as error:
        raise InvalidConfig("recovery.relays", text, f"is no relay: {error}") from None


class Relay:
    """Events of a pattern from another node into this one, while the node runs."""

    def __init__(self, node: Node, text: str) -> None:
        self.url, self.pattern = parse_relay(text)
        self._node = node
        self._name = f"relay/{node.name}/{self.pattern.text}"
        self._feed = Feed(node, self._name, self._kept, self._gap)
        self._token = node.config.security.token
        self._far = RemoteCache(self.url, self._name, node.config, self._token)
        self._gaps: dict[int, tuple[Batch, int, list[Batch]]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the other node may come later."""
        await self._feed.open()
        self._node.caches.add(self.url)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._far.close()
        await self._feed.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._relay()
            except (ReknitError, OSError) as error:
                log.warning("the relay of %s waits: %s", self.url, error)
            await asyncio.sleep(RETRY_S)

    async def _relay(self) -> None:
        session = Session(self.url, "", self._node.config, self._token, wait_s=RETRY_S)
        async with session:
            wanted = session.subscribe(
                self.pattern.text, name=self._name, history=True, auto_accept=False, is_cache=True
            )
            async with wanted as events:
                while batches := await events.take_all():
                    self._feed.put(batches)
                    await self._feed.room()

    def _kept(self, batch: Batch) -> None:
        """Durable here: accepted there. What was recovered was never handed out there."""
        if batch.settle is not None:
            batch.accept()

    # -- what is missing here

    def _gap(self, batch: Batch, seq: int) -> None:
        """The other node did not hand out `[seq, batch.first)`, as it did so before: ask it, and whom it knows."""
        if any(gap[0] is batch for gap in self._gaps.values()):
            return
        self._count += 1
        self._gaps[self._count] = (batch, seq, [])
        ranges = [(seq, batch.first)]
        bytes_max = self._node.config.recovery.ask_bytes_max
        self._far.recover(self, self._count, (batch.topic, batch.source), ranges, bytes_max, deep=True)

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        for gap in self._gaps.values():
            gap[2].extend(batch for batch in batches if batch.source == gap[0].source)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        if not is_last or number not in self._gaps:
            return
        batch, seq, found = self._gaps.pop(number)
        found = [one.cut(seq, batch.first) for one in found if one.first < batch.first and seq < one.stop]
        found.sort(key=lambda one: one.first)
        self._feed.fill(batch, seq, found, f"nobody at {self.url} has it any more")

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not asked for here."""

    def unreachable(self, cache: Peer) -> None:
        """Ask again: the gap is still there."""
        gaps, self._gaps = self._gaps, {}
        for batch, seq, _ in gaps.values():
            asyncio.get_running_loop().call_later(RETRY_S, self._gap, batch, seq)
