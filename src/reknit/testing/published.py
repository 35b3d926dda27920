"""What programs published, and what was confirmed to them."""

from __future__ import annotations

from reknit.ledger import Series
from reknit.testing.clock import Clock


class PublishedEvents:
    """Every event that a program published. No two programs publish the same payload."""

    def __init__(self, clock: Clock) -> None:
        self.confirmed: dict[Series, dict[int, bytes]] = {}
        """The payloads of events that were confirmed to their publisher, by seq."""
        self.node_of: dict[Series, str] = {}
        self.put_at: dict[bytes, float] = {}
        """When each payload was published."""
        self._put: dict[Series, dict[int, list[bytes]]] = {}
        self._clock = clock

    def put(self, series: Series, first: int, payloads: list[bytes], node: str) -> None:
        """A program publishes.

        After a crash it may use a seq again, if the first event was never stored; and so may a program that does not
        know yet that another one took over its source.
        """
        self.node_of[series] = node
        by_seq = self._put.setdefault(series, {})
        for seq, payload in enumerate(payloads, first):
            by_seq.setdefault(seq, []).append(payload)
            self.put_at[payload] = self._clock.now

    def confirm(self, series: Series, seq: int, payload: bytes) -> bool:
        """A program was told that its event is stored. False if it was told so of another event before."""
        return self.confirmed.setdefault(series, {}).setdefault(seq, payload) == payload

    def is_known(self, series: Series, seq: int, payload: bytes | None) -> bool:
        """Whether somebody published this event. None: with any payload."""
        put = self._put.get(series, {}).get(seq, [])
        return bool(put) if payload is None else payload in put

    def last_put(self, series: Series, seq: int) -> float:
        """When an event with this seq was published for the last time."""
        return max(self.put_at[payload] for payload in self._put[series][seq])

    def first_put(self, series: Series, seq: int) -> float:
        """When an event with this seq was published for the first time."""
        return min(self.put_at[payload] for payload in self._put[series][seq])
