"""From the node into Zenoh: a durable subscriber puts every event into the network, and then accepts it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import zenoh

from reknit.batch import TYPE_PUBLISH, Batch
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config
from reknit.errors import ReknitError
from reknit.gateway.zenoh.neighbours import ZenohNeighbours
from reknit.gateway.zenoh.notices import Notices
from reknit.gateway.zenoh.publishers import ZenohPublishers
from reknit.gateway.zenoh.samples import is_from_zenoh
from reknit.gateway.zenoh.threads import ZenohPanicked, call
from reknit.outcome import Code
from reknit.trust.gate import Gate
from reknit.trust.rules import ANONYMOUS

log = logging.getLogger("reknit.zenoh")

RETRY_S: Final = 0.5


class ZenohOutbound:
    """Forwards the events of the node at `url`, except those that came from Zenoh or that a linked node puts there."""

    def __init__(
        self,
        url: str,
        config: Config,
        *,
        pattern: str,
        name: str,
        publishers: ZenohPublishers,
        neighbours: ZenohNeighbours,
        notices: Notices,
        gate: Gate,
    ) -> None:
        self._url = url
        self._config = config
        self._pattern = pattern
        self._name = name
        self._publishers = publishers
        self._neighbours = neighbours
        self._notices = notices
        self._gate = gate

    async def run(self) -> None:
        """Forward until cancelled. After an error, subscribe again."""
        while True:
            try:
                async with Session(self._url, "", self._config) as session:
                    subscription = session.subscribe(self._pattern, name=self._name, auto_accept=False)
                    async with subscription as events:
                        await self._forward(events)
            except (ReknitError, TimeoutError, zenoh.ZError) as error:
                log.warning("forwarding to Zenoh is paused: %s", str(error) or "Zenoh accepts no events")
            await asyncio.sleep(RETRY_S)

    async def beat(self, every_s: float) -> None:
        """Tell the last number of each source until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await call(self._publishers.beat)
            except (TimeoutError, zenoh.ZError) as error:
                log.warning("no heartbeats to Zenoh: %s", str(error) or "Zenoh does not take them")

    async def _forward(self, events: Subscription) -> None:
        while batches := await events.take_all():
            ours = [batch for batch in batches if self._is_wanted(batch)]
            unfit = await self._put(ours) if ours else []
            for batch in batches:
                if batch in unfit:
                    batch.reject(Code.INTERNAL, "it can't be put into Zenoh: the node's log says why")
                else:
                    batch.accept()

    async def _put(self, batches: list[Batch]) -> list[Batch]:
        """Put batches. Returns those that can't be: the others must not wait for them for ever."""
        try:
            await call(self._publishers.put, batches)
        except (ReknitError, TimeoutError, zenoh.ZError) as error:
            if not isinstance(error, ZenohPanicked):
                raise
        except Exception:
            log.debug("putting several batches failed", exc_info=True)
        else:
            return []
        if len(batches) > 1:
            return [unfit for batch in batches for unfit in await self._put([batch])]
        [batch] = batches
        log.error(
            "internal error: events %d to %d on %r can't be put into Zenoh",
            batch.first,
            batch.stop - 1,
            batch.topic,
        )
        return batches

    def _is_wanted(self, batch: Batch) -> bool:
        """Whether a batch goes to Zenoh: it is not from there, nobody else puts it, and everybody may read it."""
        if is_from_zenoh(batch.source) or not self._gate.may_read(ANONYMOUS, batch.topic):
            return False
        if batch.head.type != TYPE_PUBLISH:
            self._notices.tell(batch.topic, "requests and responses go to Zenoh without what makes them so")
        elif batch.head.ttl_ms:
            self._notices.tell(batch.topic, "the ttl of events is not known in Zenoh")
        return self._neighbours.puts(batch.source)
