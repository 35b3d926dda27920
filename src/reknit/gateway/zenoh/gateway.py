"""The Zenoh gateway: a node joins a Zenoh network, and events flow both ways.

Samples of Zenoh's publishers become events under the same key, with their source information. Events that are published
here are put there. Patterns are Zenoh's key expressions on both sides. A gap in an advanced publisher's numbers is
recovered from its cache, and its history is fetched when it appears. A Zenoh subscriber that recovers asks for our
numbers, and gets the events from the journal. A Zenoh network does not say who somebody is: the node's rules for
`anonymous` decide what it may publish and read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import zenoh

from reknit.batch import Batch
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.zenoh.inbound import ZenohInbound
from reknit.gateway.zenoh.outbound import ZenohOutbound
from reknit.gateway.zenoh.publishers import ZenohPublishers
from reknit.gateway.zenoh.query_answers import QueryAnswers
from reknit.gateway.zenoh.sample_queue import SampleQueue
from reknit.gateway.zenoh.samples import WRAP
from reknit.gateway.zenoh.session import ZenohSession, read_sample, zenoh_config, zenoh_tls
from reknit.gateway.zenoh.threads import call
from reknit.ledger import Series
from reknit.node.api import GatewayNode
from reknit.protocol.replication.gap import Gap
from reknit.transport import memory
from reknit.trust.rules import ANONYMOUS


class ZenohGateway:
    """Joins the node's topics with a Zenoh network, while the node runs."""

    def __init__(self, node: GatewayNode) -> None:
        settings = node.config.recovery
        self._node = node
        self._pattern = settings.zenoh_pattern.text
        tls = zenoh_tls(node.config.transport)
        self._session = ZenohSession(zenoh_config(settings.zenoh_listen, settings.zenoh_connect, tls=tls))
        self._local_publisher = node.local_publisher("zenoh", lambda batch: None, self._on_gap)
        self.queue = SampleQueue()
        self.publishers = ZenohPublishers(self._session)
        self._answers = QueryAnswers(self._session, self.publishers, self._find)
        self._inbound = ZenohInbound(
            node.name,
            queue=self.queue,
            publisher=self._local_publisher,
            session=self._session,
            gate=node.gate,
            rates=node.rates,
            quotas=ClientQuotas(node.quotas, node.gate.sources),
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def taken(self) -> int:
        """How many events came from Zenoh."""
        return self._inbound.taken

    @property
    def put(self) -> int:
        """How many events were put into Zenoh."""
        return self.publishers.count

    @property
    def lost(self) -> int:
        """How many missing events could not be recovered from the Zenoh network."""
        return self._inbound.lost

    async def start(self) -> None:
        """Join the network. Peers may come later."""
        node = self._node
        await self._local_publisher.open()
        await call(
            self._session.open,
            self._pattern,
            on_sample=self._on_sample,
            on_query=self._answers.answer,
            on_publisher=self._on_publisher,
        )
        url = memory.new_url("zenoh-out")
        self._stop_listening = memory.listen(url, node)
        outbound = ZenohOutbound(
            url,
            node.config,
            pattern=self._pattern,
            name=f"zenoh/{node.name}",
            publishers=self.publishers,
            gate=node.gate,
        )
        self._tasks = [asyncio.create_task(self._inbound.run()), asyncio.create_task(outbound.run())]

    async def stop(self) -> None:
        """Leave the network. This ends even if Zenoh's threads block."""
        self._session.leave()
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._inbound.close()
        await self._session.close(self.publishers.all())
        await self._local_publisher.close()
        self._stop_listening()

    # -- on Zenoh's threads

    def _on_sample(self, sample: zenoh.Sample) -> None:
        """Queue a sample, unless it is our own. Waits while too many are queued."""
        found = read_sample(sample)
        if found.origin is None or found.origin.zid != self._session.zid:
            self.queue.put(found)

    def _on_publisher(self, token: zenoh.Sample) -> None:
        """An advanced publisher appeared: fetch its history before its next sample."""
        text = str(token.key_expr)
        if self._session.is_leaving or token.kind != zenoh.SampleKind.PUT or f"/{self._session.zid}/" in text:
            return
        key = text.partition("/@adv/")[0]
        self.queue.begin_history(key)
        threading.Thread(target=self._fetch_history, args=(key, text), daemon=True).start()

    def _fetch_history(self, key: str, token: str) -> None:
        self.queue.end_history(key, self._session.query(f"{token}?_anyke"))

    # -- on the event loop

    def _on_gap(self, gap: Gap) -> None:
        self._inbound.on_gap(gap)

    def _find(self, series: Series, start: int, stop: int) -> list[Batch]:
        """The batches of a series whose seqs, as far as Zenoh's 32 bits tell, are `[start, stop)`."""
        if not self._node.gate.may_read(ANONYMOUS, series[0]):
            return []
        last = self._node.journal.sources(series[0]).get(series[1], 0)
        base = last - last % WRAP
        return self._node.find(*series, base + start, min(base + stop, last + 1)) if start <= last else []
