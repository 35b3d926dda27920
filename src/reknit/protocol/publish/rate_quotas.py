"""How fast each identity may publish: events and bytes a second. At the limit its publishers wait.

An identity may publish a second's worth at once. What arrives beyond that is still taken, for up to `DEBT_S` seconds'
worth, because it was on its way before its publisher could be told to wait: it is a debt, and is paid by waiting.

    batches within the rate         taken
    batches into debt               taken; Hold, once, and Go when the debt is paid
    batches beyond `DEBT_S`         not taken, and none of this peer until Go, after which it sends them again

Every decision is about a batch: a count and a length. Without a quota nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from reknit.batch import Head
from reknit.protocol.machine import Peer
from reknit.token_bucket import TokenBucket
from reknit.wire.codec import Frames

DEBT_S: Final = 10.0
NAMES_MAX: Final = 10_000
"""So many identities are remembered; then those that owe nothing are forgotten."""


class Rates(NamedTuple):
    """How much an identity may publish in a second; 0 for no limit."""

    events: int = 0
    bytes: int = 0


class _Account:
    """What one identity has published lately."""

    __slots__ = ("_buckets",)

    def __init__(self, rates: Rates) -> None:
        self._buckets = [
            (index, quota, rate, TokenBucket(rate, rate))
            for index, (quota, rate) in enumerate(zip(("events_per_s", "bytes_per_s"), rates, strict=True))
            if rate
        ]

    def charge(self, events: int, size: int, now: float) -> None:
        for index, _, _, bucket in self._buckets:
            bucket.take((events, size)[index], now)

    def ready(self, now: float) -> tuple[float, str]:
        """When it may publish again, and the quota that it waits for."""
        waits = [(bucket.ready_at(now), f"{quota}={rate}") for _, quota, rate, bucket in self._buckets]
        return max(waits)


class RateQuotas:
    """The rates of all identities. `rates_of` says what an identity may do.

    >>> quotas = RateQuotas(lambda who: Rates(events=10))
    >>> quotas.charge("ann", 25, 1_000, now=0.0)
    >>> quotas.ready("ann", 0.0), quotas.ready("bob", 0.0)
    ((1.5, 'events_per_s=10'), (0.0, ''))
    """

    def __init__(self, rates_of: Callable[[str], Rates]) -> None:
        self._rates_of = rates_of
        self._accounts: dict[str, _Account | None] = {}
        self.waits: dict[str, int] = {}
        """By identity: how often it was told to wait."""

    def charge(self, who: str, events: int, size: int, now: float) -> None:
        """An identity published."""
        account = self._account(who, now)
        if account is not None:
            account.charge(events, size, now)

    def ready(self, who: str, now: float) -> tuple[float, str]:
        """When an identity may publish again, and the quota that it waits for; `now` if it need not wait."""
        account = self._account(who, now)
        ready_at, quota = account.ready(now) if account is not None else (now, "")
        return (ready_at, quota) if ready_at > now else (now, "")

    def waited(self, who: str) -> None:
        """An identity was told to wait."""
        if who in self.waits or len(self.waits) < NAMES_MAX:
            self.waits[who] = self.waits.get(who, 0) + 1

    def _account(self, who: str, now: float) -> _Account | None:
        if who not in self._accounts:
            if len(self._accounts) >= NAMES_MAX:
                self._forget_idle(now)
            rates = self._rates_of(who)
            self._accounts[who] = _Account(rates) if any(rates) else None
        return self._accounts[who]

    def _forget_idle(self, now: float) -> None:
        accounts = self._accounts.items()
        self._accounts = {who: one for who, one in accounts if one is not None and one.ready(now)[0] > now}


class PublishQuotas:
    """Decides how many batches of a peer are taken. `who` names the identity of a peer."""

    def __init__(self, rates: RateQuotas, who: Callable[[Peer], str]) -> None:
        self.rates = rates
        self._who = who
        self._held: dict[Peer, float] = {}
        """Peers that were told to wait, and when to look at them again."""
        self._away: set[Peer] = set()
        """Those of them some of whose batches were not taken: later ones would leave a gap."""

    def split(
        self, frames: Frames, next_seqs: Mapping[bytes, int], peer: Peer, now: float
    ) -> tuple[Frames, Sequence[Head], str]:
        """The batches that are taken, those that are not, and why the peer has to wait, unless it was told before.

        `next_seqs` has the seqs that are expected of known sources: what is here already costs nothing.
        """
        heads = frames.heads
        count, text = self._admit(heads, next_seqs, peer, now)
        if count == len(heads):
            return frames, (), text
        length = sum(head.length for head in heads[:count])
        return Frames(frames.data[:length], heads[:count]), heads[count:], text

    def _admit(
        self, heads: Sequence[Head], next_seqs: Mapping[bytes, int], peer: Peer, now: float
    ) -> tuple[int, str]:
        """How many batches are taken, and why the peer has to wait."""
        who = self._who(peer)
        if peer in self._away:
            return 0, self._text(who, now)
        count = 0
        for head in heads:
            if self.rates.ready(who, now)[0] > now + DEBT_S:
                self._away.add(peer)
                break
            events = head.stop - max(head.first, next_seqs.get(head.source, 0))
            if events > 0:
                self.rates.charge(who, events, head.length * events // head.count, now)
            count += 1
        return count, self._hold(who, peer, now)

    def _hold(self, who: str, peer: Peer, now: float) -> str:
        ready_at, _ = self.rates.ready(who, now)
        if ready_at <= now:
            return ""
        is_told = peer in self._held
        self._held[peer] = ready_at
        if is_told and peer not in self._away:
            return ""
        self.rates.waited(who)
        return self._text(who, now)

    def _text(self, who: str, now: float) -> str:
        return f"{who} has published as much as allowed ({self.rates.ready(who, now)[1]}): security.quotas"

    def tick(self, now: float) -> list[Peer]:
        """The peers that may publish again."""
        ready: list[Peer] = []
        for peer, due in list(self._held.items()):
            if due > now:
                continue
            self._held[peer], _ = self.rates.ready(self._who(peer), now)
            if self._held[peer] <= now:
                self.forget(peer)
                ready.append(peer)
        return ready

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return min(self._held.values(), default=None)

    def forget(self, peer: Peer) -> None:
        """A peer's connection is gone, or it need not wait."""
        self._held.pop(peer, None)
        self._away.discard(peer)
