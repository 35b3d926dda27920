"""Requests to caches: a reply goes to the requester, and brings only what was asked for."""

from collections.abc import Sequence

from reknit.batch import Batch
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache_requests import CacheRequests
from reknit.seqset import Range
from reknit.wire.codec import Frames
from reknit.wire.recovery import Recovered, Span, Surveyed

ONE, TWO = b"1" * 16, b"2" * 16


class Requester:
    """Notes what it gets."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        self.got += [(batch.source, batch.first, batch.stop) for batch in batches]

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self.got.append((number, list(covered)))

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        self.got += [span.topic for span in spans]

    def unreachable(self, cache: Peer) -> None:
        self.got.append(cache)


def batch(source: bytes, first: int, count: int, topic: str = "plant/a") -> Batch:
    return Batch.build(source, topic, first, [b"x"] * count, time_us=0)


def test_events_that_were_not_asked_for_are_dropped() -> None:
    requests, requester = CacheRequests(), Requester()
    asked = requests.recover(requester, "cache", 7, ("plant/a", ONE), [(3, 6), (9, 10)], 1000, deep=True)
    sent = [
        batch(ONE, 2, 2),
        batch(ONE, 6, 3),
        batch(TWO, 3, 1),
        batch(ONE, 4, 1, "plant/b"),
        batch(ONE, 9, 1),
        batch(ONE, 1000, 1),
    ]
    data = b"".join(bytes(one.data) for one in sent)
    requests.take(Recovered(asked.id, len(data), [(3, 10)]))
    assert requests.take_frames(Frames(data, [one.head for one in sent])) is None
    assert requester.got == [(ONE, 2, 4), (ONE, 9, 10), (7, [(3, 10)])]


def test_series_that_were_not_asked_for_are_dropped() -> None:
    requests, requester = CacheRequests(), Requester()
    asked = requests.survey(requester, "cache", 7, "plant/*", 0.0, deep=True)
    spans = [Span(topic, ONE, [(1, 9)], 8) for topic in ("plant/a", "office/a", "plant/a/b")]
    requests.take(Surveyed(asked.id, spans))
    assert requester.got == ["plant/a"]


def test_a_lost_connection_is_reported_once_for_each_cache() -> None:
    requests, requester = CacheRequests(), Requester()
    for number in range(3):
        requests.survey(requester, "cache", number, "plant/*", 0.0, deep=True)
    requests.lost()
    assert requester.got == ["cache"]
