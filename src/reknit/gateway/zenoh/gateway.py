"""The Zenoh gateway: a node joins a Zenoh network, and events flow both ways.

Samples of Zenoh's publishers become events under the same key, with their source information. Events that are published
here are put there. Patterns are Zenoh's key expressions on both sides. Towards Zenoh each source is an advanced
publisher: it has a token, heartbeats, and the journal as its cache. Towards Zenoh's publishers the node is an advanced
subscriber: it takes their history, fills gaps from their caches and learns from heartbeats what it misses at the end. A
Zenoh network does not say who somebody is: the node's rules for `anonymous` decide what it may publish and read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import zenoh

from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.zenoh.admission import SampleAdmission
from reknit.gateway.zenoh.attributes import read_sample
from reknit.gateway.zenoh.gap_recoveries import GapRecoveries
from reknit.gateway.zenoh.history import ZenohHistory
from reknit.gateway.zenoh.inbound import ZenohInbound
from reknit.gateway.zenoh.keys import GATEWAYS, gateway_key, publisher_of
from reknit.gateway.zenoh.known_gateways import KnownGateways
from reknit.gateway.zenoh.neighbours import ZenohNeighbours
from reknit.gateway.zenoh.notices import Notices
from reknit.gateway.zenoh.outbound import ZenohOutbound
from reknit.gateway.zenoh.publishers import PUBLISHERS_MAX, ZenohPublishers
from reknit.gateway.zenoh.query_answers import QueryAnswers
from reknit.gateway.zenoh.sample_queue import SampleQueue
from reknit.gateway.zenoh.samples import (
    LastNumber,
    Origin,
    SampleNumbering,
    ZenohSample,
    is_from_zenoh,
    sn_of,
)
from reknit.gateway.zenoh.session import ZenohSession, gateway_config, gateway_mode
from reknit.gateway.zenoh.subscribers import Subscriber, ZenohSubscribers
from reknit.gateway.zenoh.threads import call, start
from reknit.ledger import Series
from reknit.node.api import GatewayNode
from reknit.protocol.replication.gap import Gap
from reknit.seqset import SeqSet
from reknit.transport import memory
from reknit.trust.rules import ANONYMOUS

JOIN_S: Final = 5.0
"""How long a node waits for a Zenoh router when it starts. It goes on without one, and joins when it is there."""
FETCHES_MAX: Final = 64
"""Of how many publishers history is fetched at once. Others wait."""


class ZenohGateway:
    """Joins the node's topics with a Zenoh network, while the node runs."""

    shown_as = "zenoh"

    def __init__(self, node: GatewayNode) -> None:
        config = node.config
        self._node = node
        self._settings = config.recovery
        self._pattern = config.recovery.zenoh_pattern.text
        self._session = ZenohSession(gateway_config(config.recovery, config.transport))
        self._local_publisher = node.local_publisher("zenoh", lambda batch: None, self._on_gap)
        self.queue = SampleQueue()
        self.publishers = ZenohPublishers(self._session, node.name)
        self.neighbours = ZenohNeighbours(node.name, node.links)
        self.subscribers = ZenohSubscribers(self._session, node.name, self._shown)
        self._notices = Notices()
        self._gateways = KnownGateways(self._session)
        self._answers = QueryAnswers(
            self._session, self.publishers, ZenohHistory(node, self.publishers, self.neighbours)
        )
        self._numbering = SampleNumbering(node.name, config.limits)
        self._admission = SampleAdmission(
            node.gate,
            ClientQuotas(node.quotas, node.gate.sources),
            self._notices,
            payload_bytes_max=config.limits.payload_bytes_max,
            topic_bytes_max=config.limits.topic_bytes_max,
            future_s_max=config.limits.future_s_max,
        )
        self._recoveries = GapRecoveries(
            config.recovery,
            session=self._session,
            numbering=self._numbering,
            publisher=self._local_publisher,
            published=self._published,
            fitting=self._admission.fitting,
        )
        self._inbound = ZenohInbound(
            node.name,
            queue=self.queue,
            publisher=self._local_publisher,
            numbering=self._numbering,
            admission=self._admission,
            recoveries=self._recoveries,
            gateways=self._gateways,
            neighbours=self.neighbours,
            published=self._published,
            rates=node.rates,
        )
        self._fetching = threading.Semaphore(FETCHES_MAX)
        self._loop = asyncio.get_running_loop()
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
        return self._recoveries.lost

    def status(self) -> dict[str, Any]:
        """What the node's status says about the Zenoh network."""
        return {
            "mode": gateway_mode(self._settings),
            "taken": self.taken,
            "put": self.put,
            "lost": self.lost,
            "gateways": sorted(self.neighbours.present),
            "subscribers": self.subscribers.others(),
        }

    def _shown(self) -> Iterator[Subscriber]:
        """The node's subscribers, apart from its own gateways and links, of which everybody may know."""
        gate = self._node.gate
        for name, pattern in self._node.subscriptions():
            is_own = name.startswith(("zenoh/", "reknit/"))
            if not is_own and (gate.is_open or gate.may_subscribe(ANONYMOUS, pattern)):
                yield pattern.text, name

    async def start(self) -> None:
        """Join the network. Peers and routers may come later."""
        await self._local_publisher.open()
        joining = asyncio.create_task(self._join())
        self._tasks = [joining]
        await asyncio.wait([joining], timeout=JOIN_S)
        if joining.done():
            await joining

    async def _join(self) -> None:
        node, settings = self._node, self._settings
        await self._session.open()
        await call(self._declare, self._known_series())
        url = memory.new_url("zenoh-out")
        self._stop_listening = memory.listen(url, node)
        outbound = ZenohOutbound(
            url,
            node.config,
            pattern=self._pattern,
            name=f"zenoh/{node.name}",
            publishers=self.publishers,
            neighbours=self.neighbours,
            notices=self._notices,
            gate=node.gate,
        )
        work = [self._inbound.run(), outbound.run(), self.subscribers.show()]
        if settings.zenoh_heartbeat_s:
            work.append(outbound.beat(settings.zenoh_heartbeat_s))
        if settings.query_s:
            work.append(self._recoveries.poll(settings.query_s))
        self._tasks += [asyncio.create_task(one) for one in work]

    def _declare(self, known: dict[Series, int]) -> None:
        """Blocking: tokens of gateways come first, so that it is known who does what when samples come."""
        session, pattern = self._session, self._pattern
        session.watch(f"{GATEWAYS}/*", self.neighbours.on_token)
        session.keep(session.token(gateway_key(self._node.name)))
        session.watch(f"{pattern}/@adv/pub/**", self._on_publisher)
        session.watch(f"{pattern}/@adv/sub/**", self.subscribers.on_token)
        session.answer(f"{pattern}/@adv/**", self._answers.recover)
        session.answer(pattern, self._answers.select)
        session.subscribe(f"{pattern}/@adv/pub/**", self._on_heartbeat)
        session.subscribe(pattern, self._on_sample)
        self.publishers.announce(known)

    async def stop(self) -> None:
        """Leave the network. This ends even if Zenoh's threads block."""
        self._session.leave()
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._recoveries.close()
        await self._session.close([*self.publishers.all(), *self.subscribers.all()])
        await self._local_publisher.close()
        self._stop_listening()

    # -- on readers' threads

    def _on_sample(self, sample: zenoh.Sample) -> None:
        """Queue a sample. Waits while too many are queued."""
        self.queue.put(read_sample(sample))

    def _on_heartbeat(self, sample: zenoh.Sample) -> None:
        """A publisher says what it put last."""
        publisher = publisher_of(str(sample.key_expr))
        if publisher is None or publisher.entity is None:
            return
        try:
            number = int(zenoh.ext.z_deserialize(zenoh.ext.UInt32, sample.payload))
        except (zenoh.ext.ZDeserializeError, ValueError):
            return
        self._gateways.learn(publisher)
        self.queue.told(LastNumber(publisher.key, Origin(publisher.zid, publisher.entity), number))

    def _on_publisher(self, token: zenoh.Sample) -> None:
        """An advanced publisher appeared: fetch its history before its next sample."""
        publisher = publisher_of(str(token.key_expr))
        if self._session.is_leaving or token.kind != zenoh.SampleKind.PUT or publisher is None:
            return
        self._gateways.learn(publisher)
        if publisher.node or publisher.entity is None:
            return  # what a gateway has put comes over a link, or its heartbeat says it
        while not self._fetching.acquire(timeout=0.2):
            if self._session.is_leaving:
                return
        self.queue.begin_history(publisher.key)
        origin = Origin(publisher.zid, publisher.entity)
        start(self._fetch_history, publisher.key, str(token.key_expr), origin)

    def _fetch_history(self, key: str, token: str, origin: Origin) -> None:
        found: list[ZenohSample] = []
        try:
            last = asyncio.run_coroutine_threadsafe(self._last_seq(key, origin), self._loop).result(5.0)
            found = self._session.query(f"{token}?_anyke" + (f";_sn={sn_of(last + 1)}.." if last else ""))
        except (
            RuntimeError,
            TimeoutError,
        ):  # the event loop is gone, or busy: a heartbeat or a gap comes later
            pass
        finally:
            self._fetching.release()
            self.queue.end_history(key, found)

    # -- on the event loop

    async def _last_seq(self, key: str, origin: Origin) -> int:
        """Up to where the node has a publisher's events."""
        source = self._numbering.source(key, origin)
        self._recoveries.has_cache(source)
        published = self._published((key, source))
        return published.last if published is not None else 0

    def _on_gap(self, gap: Gap) -> None:
        self._recoveries.ask(gap)

    def _published(self, series: Series) -> SeqSet | None:
        """Which events of a series the node has or had."""
        return self._node.journal.ledger.published.get(series) or None

    def _known_series(self) -> dict[Series, int]:
        """The series that were put into Zenoh before the node was restarted, and their last seqs."""
        journal, found = self._node.journal, dict[Series, int]()
        for topic in self._settings.zenoh_pattern.matching(journal.topics()):
            if not self._node.gate.may_read(ANONYMOUS, topic):
                continue
            for source, last in journal.sources(topic).items():
                if not is_from_zenoh(source) and self.neighbours.puts(source):
                    found[topic, source] = last
                if len(found) >= PUBLISHERS_MAX:
                    return found
        return found
