"""From Zenoh into the node: samples become batches, and gaps are filled from their publishers' caches."""

from __future__ import annotations

import asyncio
from collections import Counter

from reknit.batch import Batch
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.publish_pace import PublishPace
from reknit.gateway.zenoh.sample_queue import SampleQueue
from reknit.gateway.zenoh.samples import SampleNumbering, ZenohSample, sn_of, source_of
from reknit.gateway.zenoh.session import ZenohSession
from reknit.gateway.zenoh.threads import call
from reknit.node.replication.local_publisher import LocalPublisher
from reknit.protocol.publish.rate_quotas import RateQuotas
from reknit.protocol.replication.gap import Gap
from reknit.protocol.tunnel.topic_routes import is_routes
from reknit.trust.gate import Gate
from reknit.trust.rules import ANONYMOUS


class ZenohInbound:
    """Publishes samples on the node, in order."""

    def __init__(
        self,
        node_name: str,
        *,
        queue: SampleQueue,
        publisher: LocalPublisher,
        session: ZenohSession,
        gate: Gate,
        rates: RateQuotas | None,
        quotas: ClientQuotas,
    ) -> None:
        self._pace = PublishPace(rates)
        self._quotas = quotas
        self._node_name = node_name
        self._queue = queue
        self._publisher = publisher
        self._session = session
        self._gate = gate
        self._numbering = SampleNumbering(node_name)
        self._gaps: dict[bytes, int] = {}
        """By source: the first seq of the gap that was last recovered."""
        self._recoveries: set[asyncio.Task[None]] = set()
        self.taken = 0
        """How many samples came from Zenoh."""
        self.lost = 0
        """How many missing events could not be recovered from the Zenoh network."""

    async def run(self) -> None:
        """Publish queued samples, until cancelled."""
        while True:
            samples = self._within_quota(self._permitted(await self._queue.take()))
            for key in sorted(self._numbering.unknown_keys(samples)):
                last = await self._publisher.last_seq(source_of(key, None, self._node_name), key)
                self._numbering.resume(key, last)
            self.taken += len(samples)
            size = sum(len(sample.payload) for sample in samples)
            delay_s = self._pace.charge(ANONYMOUS, len(samples), size)
            self._publisher.put(self._numbering.batches(samples))
            await self._publisher.room()
            while (
                delay_s > 0
            ):  # the queue fills up meanwhile, and Zenoh waits or drops, as its publishers chose
                await asyncio.sleep(delay_s)
                delay_s = self._pace.delay_s(ANONYMOUS)

    def _permitted(self, samples: list[ZenohSample]) -> list[ZenohSample]:
        """The samples on topics that a Zenoh network may publish on. Routes between topics are made over HTTP."""
        keys = {sample.key for sample in samples}
        refused = {key for key in keys if is_routes(key) or not self._gate.may_publish(ANONYMOUS, key)}
        if not refused:
            return samples
        for key in sorted(refused):
            text = f"{ANONYMOUS} may not publish on {key!r}, from the Zenoh network"
            self._gate.refusals.count(ANONYMOUS, "denied", text, sum(one.key == key for one in samples))
        return [sample for sample in samples if sample.key not in refused]

    def _within_quota(self, samples: list[ZenohSample]) -> list[ZenohSample]:
        """The samples on as many topics as the network may publish on. The others are counted: nobody can be told."""
        counts = Counter(sample.key for sample in samples)
        beyond = {key for key, count in counts.items() if self._quotas.publish(ANONYMOUS, key, count)}
        return [sample for sample in samples if sample.key not in beyond] if beyond else samples

    def on_gap(self, gap: Gap) -> None:
        """The node misses events: ask the publisher's cache."""
        _, source = gap.series
        if self._gaps.get(source) != gap.start:
            self._gaps[source] = gap.start
            task = asyncio.create_task(self._recover(gap))
            self._recoveries.add(task)
            task.add_done_callback(self._recoveries.discard)

    async def _recover(self, gap: Gap) -> None:
        _, source = gap.series
        known = self._numbering.origins.get(source)
        found: list[Batch] = []
        if known is not None:
            key, origin = known
            numbers = f"{sn_of(gap.start)}..{sn_of(gap.stop - 1)}"
            selector = f"{key}/@adv/*/{origin.zid}/{origin.eid}/**?_anyke;_sn={numbers}"
            samples = await call(self._session.query, selector)
            found = [
                one.cut(gap.start, gap.stop)
                for one in self._numbering.batches(sorted(samples, key=lambda sample: sample.sn))
                if one.source == source and one.first < gap.stop and gap.start < one.stop
            ]
        self.lost += self._publisher.fill(gap, found, "no node of the Zenoh network holds it any longer")

    async def close(self) -> None:
        """Cancel recoveries that have not ended."""
        recoveries = list(self._recoveries)
        for task in recoveries:
            task.cancel()
        await asyncio.gather(*recoveries, return_exceptions=True)
