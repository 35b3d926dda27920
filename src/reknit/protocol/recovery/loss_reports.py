"""Events that never reached this node, because nobody had them: recorded, and reported to every durable subscriber once.

A relay or a gateway that meets such a range continues after it. Subscribers without a name notice the gap themselves if
a later event comes, and may know a cache that has it. There may be none, so they are told. This node is responsible for
durable subscribers: it owes them the range, which ends as
lost when it is reported, at once or when the subscriber is connected again. On topics whose events go to one subscriber
each, nobody in particular waits for the range, so it ends as lost at once.

    NeverArrives    new to the ledger: AppendRecord(Skipped), LossNoted, and a report to each durable subscriber that is
                    connected and owed it. In any case: SkipSource
    AllDispatched   everything before the losses was dispatched: Send(Lost) to each subscriber without a name that has
                    got all of it
    Subscribe       a durable subscription gets its reports when it is open, one without a name those since its position
    Opened          subscriptions were opened: their reports, each as Send(Lost) and AppendRecord(Outcomes)
    PeerLeft        the subscriptions that it requested are not waited for
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from reknit.ledger import ANYCAST, Ledger, Series
from reknit.outcome import CODE_OF, FinalOutcome, Reason
from reknit.protocol.effects import AppendRecord, Send
from reknit.protocol.machine import Machine, Peer, PeerLeft
from reknit.protocol.recovery.subscription_view import SubscriptionView, SubscriptionViews
from reknit.records import OutcomeRow, Outcomes, Record, Skipped
from reknit.wire.messages import Lost, Subscribe

TEXT: Final = "nobody has it any more"
REASON: Final = Reason.GONE
RECENT_MAX: Final = 4096
"""So many losses are remembered for subscribers without a name that are away."""


class NeverArrives(msgspec.Struct, frozen=True):
    """`[start, stop)` of a series will never arrive, and why."""

    series: Series
    start: int
    stop: int
    text: str = TEXT


class Opened(msgspec.Struct, frozen=True):
    """Subscriptions may have been opened since they were requested."""


class AllDispatched(msgspec.Struct, frozen=True):
    """Everything that was stored before is durable, and was given to the subscribers."""


class SkipSource(msgspec.Struct, frozen=True):
    """The intake continues with this seq of a source."""

    source: bytes
    seq: int


class LossNoted(msgspec.Struct, frozen=True):
    """Events are lost that were not known to be: for the log."""

    series: Series
    start: int
    stop: int
    text: str


Input = NeverArrives | Subscribe | Opened | AllDispatched | PeerLeft
Effect = AppendRecord | Send | SkipSource | LossNoted


class LossReports:
    """The lost ranges of one node. `zero_us` is the time of day at `now` 0."""

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: SubscriptionViews,
        next_number: Callable[[], int],
        zero_us: int = 0,
        position: Callable[[], int] = lambda: 0,
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._next_number = next_number
        self._zero_us = zero_us
        self._position = position
        """Where the journal ends now, with what is on its way to the disk."""
        self._recent: deque[tuple[int, NeverArrives]] = deque(maxlen=RECENT_MAX)
        """The last losses, and the positions of the journal at which they were found out."""
        self._time_us = zero_us
        self._opening: dict[tuple[Peer, int], None] = {}
        """Durable subscriptions that were requested and are not open."""
        self._unnamed: dict[tuple[Peer, int], list[NeverArrives]] = {}
        """By subscription without a name: the losses that it is not told yet."""
        self.effects: list[Effect] = []
        """What `take_effects` returns next."""

    @property
    def is_waiting(self) -> bool:
        """Whether `Opened` would have an effect."""
        return bool(self._opening) and any(key in self._subscriptions for key in self._opening)

    @property
    def has_untold(self) -> bool:
        """Whether `AllDispatched` may have an effect."""
        return bool(self._unnamed)

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """About events that are lost, or from a subscriber."""
        self._time_us = self._zero_us + int(now * 1e6)
        match message:
            case NeverArrives():
                self._skip(message)
            case Subscribe(account=name, sub=sub, start=start):
                if name and self._ledger.skipped:
                    self._opening[peer, sub] = None
                elif not name and start.position is not None:
                    self._came_back(peer, sub, start.position)
            case Opened():
                self._report_opened()
            case AllDispatched():
                self._tell_unnamed()
            case PeerLeft():
                self._opening = {key: None for key in self._opening if key[0] != peer}
                self._unnamed = {key: losses for key, losses in self._unnamed.items() if key[0] != peer}
            case _:
                assert_never(message)

    def _skip(self, lost: NeverArrives) -> None:
        series, start, stop = lost.series, lost.start, lost.stop
        fresh = self._ledger.skip(*series, start, stop)
        if fresh:
            self.effects.append(LossNoted(series, start, stop, lost.text))
        self._recent.extend((self._position(), NeverArrives(series, *part)) for part in fresh)
        for low, high in fresh:
            self._store(Skipped(*series, low, high, lost.text, self._time_us))
        self.effects.append(SkipSource(series[1], stop))
        for name, shared in list(self._ledger.accounts.items()) if fresh else ():
            if name.startswith(ANYCAST):
                parts = [part for bounds in fresh for part in shared.open_within(series, *bounds)]
                self._record(name, [(series, *part) for part in parts])
        for subscription in self._subscriptions.values() if fresh else ():
            account = self._ledger.accounts.get(subscription.name) if subscription.is_durable else None
            if account is not None:
                parts = [part for bounds in fresh for part in account.open_within(series, *bounds)]
                self._report(subscription, [(series, *part) for part in parts])
            elif not subscription.is_durable:
                untold = self._unnamed.setdefault((subscription.peer, subscription.sub), [])
                untold += [NeverArrives(series, *part) for part in fresh]

    def _came_back(self, peer: Peer, sub: int, position: int) -> None:
        """A subscriber without a name resumes: losses that were found out meanwhile are told when it has caught up."""
        if missed := [one for at, one in self._recent if at >= position]:
            self._unnamed[peer, sub] = missed

    def _tell_unnamed(self) -> None:
        """Tell subscribers without a name, after the events before: to them, a loss ends everything before it."""
        for key in list(self._unnamed):
            if key not in self._subscriptions:
                del self._unnamed[key]
            elif (subscription := self._subscriptions[key]).is_live:
                for one in self._unnamed.pop(key):
                    if subscription.pattern.matches(one.series[0]):
                        lost = Lost(subscription.sub, *one.series, one.start, one.stop, str(REASON))
                        self.effects.append(Send(subscription.peer, lost))

    def _report_opened(self) -> None:
        for key in [key for key in self._opening if key in self._subscriptions]:
            del self._opening[key]
            subscription = self._subscriptions[key]
            self._report(subscription, self._ledger.untold(subscription.name))

    def _report(self, subscription: SubscriptionView, untold: list[tuple[Series, int, int]]) -> None:
        """Report ranges to a connected subscriber, and record them as lost to it."""
        for series, start, stop in untold:
            lost = Lost(subscription.sub, *series, start, stop, str(REASON))
            self.effects.append(Send(subscription.peer, lost))
        self._record(subscription.name, untold)

    def _record(self, name: str, ranges: list[tuple[Series, int, int]]) -> None:
        code = int(CODE_OF[REASON])
        rows = [
            OutcomeRow(*series, start, stop, FinalOutcome.LOST, code, str(REASON), TEXT, 0, self._time_us)
            for series, start, stop in ranges
        ]
        if rows:
            self._store(Outcomes(name, rows))

    def _store(self, record: Record) -> None:
        self.effects.append(AppendRecord(self._next_number(), record))

    def tick(self, now: float) -> None:
        """Nothing has a deadline."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects


_MACHINE: type[Machine[Input, Effect]] = LossReports
