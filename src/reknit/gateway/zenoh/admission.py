"""Which samples a node takes from a Zenoh network. What it does not take is counted and told."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec.structs import replace

from reknit import environment
from reknit.batch_layout import TIME_US_MAX
from reknit.errors import InvalidTopic
from reknit.gateway.client_quotas import ClientQuotas
from reknit.gateway.zenoh.notices import Notices
from reknit.gateway.zenoh.samples import ZenohSample
from reknit.protocol.tunnel.topic_routes import is_routes
from reknit.topic import check_topic
from reknit.trust.gate import Gate
from reknit.trust.rules import ANONYMOUS

KEYS_MAX: Final = 65_536


class SampleAdmission:
    """Decides by key, size, rules and quotas."""

    def __init__(
        self,
        gate: Gate,
        quotas: ClientQuotas,
        notices: Notices,
        *,
        payload_bytes_max: int,
        topic_bytes_max: int,
        future_s_max: float,
    ) -> None:
        self._gate = gate
        self._quotas = quotas
        self._notices = notices
        self._payload_bytes_max = payload_bytes_max
        self._topic_bytes_max = topic_bytes_max
        self._future_us_max = int(future_s_max * 1e6)
        self._good: set[str] = set()
        """Keys that are topics."""

    def admitted(self, samples: list[ZenohSample]) -> list[ZenohSample]:
        """The samples to take, in their order."""
        fitting = [one for one in self.fitting(samples) if self._is_topic(one.key)]
        return self._within_quota(self._permitted(fitting))

    def permits(self, key: str) -> bool:
        """Whether samples of a key may be taken."""
        return self._is_topic(key) and not is_routes(key) and self._gate.may_publish(ANONYMOUS, key)

    def fitting(self, samples: list[ZenohSample]) -> list[ZenohSample]:
        """The samples that are not too long, with times that a node takes."""
        latest_us = environment.time_us() + self._future_us_max if self._future_us_max else TIME_US_MAX
        return [self._timely(one, latest_us) for one in samples if self._fits(one)]

    def _timely(self, sample: ZenohSample, latest_us: int) -> ZenohSample:
        """A publisher's clock may be wrong: the node would refuse the event, and has no way to tell the publisher."""
        if sample.time_us <= latest_us:
            return sample
        self._notices.tell(
            sample.key, "a timestamp in the future (limits.future_s_max) is replaced by the time of arrival"
        )
        return replace(sample, time_us=environment.time_us())

    def _fits(self, sample: ZenohSample) -> bool:
        if sample.size <= self._payload_bytes_max:
            return True
        text = f"samples longer than limits.payload_bytes_max ({self._payload_bytes_max} bytes) are not taken"
        self._notices.tell(sample.key, text)
        return False

    def _is_topic(self, key: str) -> bool:
        if key in self._good:
            return True
        try:
            check_topic(key)
        except InvalidTopic as error:
            self._notices.tell(key, f"samples are not taken: {error}")
            return False
        if len(key.encode()) > self._topic_bytes_max:
            self._notices.tell(key, f"longer than limits.topic_bytes_max ({self._topic_bytes_max} bytes)")
            return False
        if len(self._good) < KEYS_MAX:
            self._good.add(key)
        return True

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
