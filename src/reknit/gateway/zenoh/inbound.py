"""From Zenoh into the node: samples become batches; what is missing is asked of their publishers' caches."""

from __future__ import annotations

import asyncio
import logging

import zenoh

from reknit.batch import Batch
from reknit.gateway.publish_pace import PublishPace
from reknit.gateway.zenoh.admission import SampleAdmission
from reknit.gateway.zenoh.attributes import unpack_headers
from reknit.gateway.zenoh.gap_recoveries import GapRecoveries, Published
from reknit.gateway.zenoh.known_gateways import KnownGateways
from reknit.gateway.zenoh.neighbours import ZenohNeighbours
from reknit.gateway.zenoh.sample_queue import SampleQueue
from reknit.gateway.zenoh.samples import LastNumber, SampleNumbering, ZenohSample, source_of
from reknit.node.replication.local_publisher import LocalPublisher
from reknit.protocol.publish.rate_quotas import RateQuotas
from reknit.protocol.replication.gap import Gap
from reknit.trust.rules import ANONYMOUS

log = logging.getLogger("reknit.zenoh")


class ZenohInbound:
    """Publishes samples on the node, in order."""

    def __init__(
        self,
        node_name: str,
        *,
        queue: SampleQueue,
        publisher: LocalPublisher,
        numbering: SampleNumbering,
        admission: SampleAdmission,
        recoveries: GapRecoveries,
        gateways: KnownGateways,
        neighbours: ZenohNeighbours,
        published: Published,
        rates: RateQuotas | None,
    ) -> None:
        self._node_name = node_name
        self._queue = queue
        self._publisher = publisher
        self._numbering = numbering
        self._admission = admission
        self._recoveries = recoveries
        self._gateways = gateways
        self._neighbours = neighbours
        self._published = published
        self._pace = PublishPace(rates)
        self.taken = 0
        """How many samples came from Zenoh."""

    async def run(self) -> None:
        """Publish queued samples, until cancelled."""
        while True:
            taken = await self._queue.take()
            try:
                await self._publish([one for one in taken if isinstance(one, ZenohSample)])
                await self._told([one for one in taken if isinstance(one, LastNumber)])
            except (TimeoutError, zenoh.ZError) as error:  # numbered samples are asked for again
                log.warning("samples from Zenoh were not taken: %s", error or "Zenoh does not answer")
            except Exception:  # one that can't be taken must not stop all that follow
                log.exception("internal error: %d samples from Zenoh were not taken", len(taken))

    async def _publish(self, samples: list[ZenohSample]) -> None:
        wanted = await self._wanted(samples)
        samples = self._admission.admitted(wanted)
        for key in sorted(self._numbering.unknown_keys(samples)):
            last = await self._publisher.last_seq(source_of(key, None, self._node_name), key)
            self._numbering.resume(key, last)
        self._resume(samples)
        self.taken += len(samples)
        size = sum(len(sample.payload) for sample in samples)
        delay_s = self._pace.charge(ANONYMOUS, len(samples), size)
        self._put(samples)
        await self._publisher.room()
        while delay_s > 0:  # the queue fills up, and Zenoh waits or drops, as its publishers chose
            await asyncio.sleep(delay_s)
            delay_s = self._pace.delay_s(ANONYMOUS)

    async def _wanted(self, samples: list[ZenohSample]) -> list[ZenohSample]:
        """The samples that do not come over a link, too. Those of reknit gateways get their headers back."""
        nodes = await self._gateways.nodes_of(samples)
        is_first = self._neighbours.takes_unnumbered()
        found = []
        for sample in samples:
            node = nodes.get((sample.key, sample.origin.zid), "") if sample.origin is not None else ""
            if (sample.origin is None and not is_first) or (node and self._neighbours.is_linked(node)):
                continue
            if node:
                sample = ZenohSample(
                    sample.key,
                    sample.payload,
                    sample.time_us,
                    sample.origin,
                    sample.sn,
                    unpack_headers(sample.headers),
                    sample.priority,
                )
            found.append(sample)
        return found

    def _resume(self, found: list[ZenohSample] | list[LastNumber]) -> None:
        for source, key in self._numbering.unknown_sources(found).items():
            published = self._published((key, source))
            if published is not None:
                self._numbering.resume_source(source, published.last)

    def _put(self, samples: list[ZenohSample]) -> None:
        """Samples that come late, as others asked for them, fill gaps."""
        late: list[Batch] = []
        ready: list[Batch] = []
        highest: dict[bytes, int] = {}
        for sample in samples:
            if sample.origin is not None:
                source = self._numbering.source(sample.key, sample.origin)
                highest.setdefault(source, self._numbering.last_seq(source))
        for batch in self._numbering.batches(samples):
            if batch.first > highest.get(batch.source, 0):
                ready.append(batch)
            elif self._is_missing(batch):
                late.append(batch)
        if late:
            self._publisher.put_before(late)
        self._publisher.put(ready)

    def _is_missing(self, batch: Batch) -> bool:
        published = self._published((batch.topic, batch.source))
        return published is None or bool(published.missing(batch.first, batch.stop))

    async def _told(self, numbers: list[LastNumber]) -> None:
        """Publishers said what they put last: what did not come is recovered."""
        newest = {(one.key, one.origin): one for one in numbers if self._admission.permits(one.key)}
        if not newest:
            return
        told = list(newest.values())
        nodes = await self._gateways.nodes_of(told)
        self._resume(told)
        for one in told:
            node = nodes.get((one.key, one.origin.zid), "")
            if node and self._neighbours.is_linked(node):
                continue
            source = self._numbering.source(one.key, one.origin)
            self._recoveries.has_cache(source)
            last, seq = self._numbering.last_seq(source), self._numbering.seq(source, one.sn)
            if seq > last:
                self._recoveries.ask(Gap((one.key, source), last + 1, seq + 1))
