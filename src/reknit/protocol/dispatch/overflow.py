"""Limits of queues: how much may wait for one durable subscriber, by count and by bytes, and what happens beyond that.

`withhold`: publishers wait, but not for a relay or a bridge: what it has to copy waits in the journal. In a ring of
bridges each node would otherwise wait for the next one. `refuse_newest` and `drop_oldest`: the newest or the oldest
events become dead letters. A part of every queue is reserved for CS5 and CS6. Without a limit nothing is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reknit.batch import Head
from reknit.ledger import ANYCAST, COPIES, Ledger, Series
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.effects import Withhold
from reknit.records import OutcomeRow
from reknit.seqset import Range
from reknit.topic import Pattern
from reknit.topic_index import TopicIndex

RESERVED_FROM: Final = 5
"""CS5 and CS6 may use the reserve."""
AGAIN_PERCENT: Final = 90
"""Publishers continue when the queue is down to this share of its limit, so that they do not stop and start often."""


@dataclass(slots=True)
class QueueLoad:
    """The events that wait for one subscriber. Only `Overflow` changes it."""

    name: str
    events: int = 0
    seen_events: int = 0
    seen_bytes: int = 0
    line: deque[tuple[Series, int, int]] = field(default_factory=deque)
    """Events that could be dropped, the oldest first."""
    swept: deque[tuple[Series, int, int]] = field(default_factory=deque)
    """The same from before this node started: older than everything in `line`."""

    @property
    def bytes(self) -> int:
        """An estimate: the number of events times their average size."""
        return self.events * self.seen_bytes // self.seen_events if self.seen_events else 0

    def note(self, head: Head) -> None:
        self.seen_events += head.count
        self.seen_bytes += head.length


class Overflow:
    """Counts the events that wait for each durable subscriber, if there is a limit."""

    def __init__(self, rules: DispatchRules, ledger: Ledger) -> None:
        self._rules = rules
        self._ledger = ledger
        self._loads: dict[str, QueueLoad] = {}
        self._index: TopicIndex[str] = TopicIndex()
        self._patterns: dict[str, Pattern] = {}
        self.full: set[str] = set()
        """Subscribers whose full queues make publishers wait."""
        self._announced: set[str] = set()
        self.is_on = rules.limits_queues
        for name in sorted(ledger.accounts) if self.is_on else ():
            self.opened(name)

    def opened(self, name: str) -> None:
        """A durable subscriber has an account: the ledger knows which events wait for it."""
        account = self._ledger.accounts.get(name)
        if not self.is_on or account is None or name in self._loads or name.startswith(ANYCAST):
            return
        load = self._loads[name] = QueueLoad(name)
        self._patterns[name] = account.pattern
        self._index.add(account.pattern, name)
        for series, seqs in self._ledger.matching(account.pattern):
            load.events += account.owed(series, seqs).difference(account.ended(series)).count
        self._judge(load)

    def closed(self, name: str) -> Withhold | None:
        """A durable subscriber was deleted."""
        if self._loads.pop(name, None) is None:
            return None
        self._index.remove(self._patterns.pop(name), name)
        return self.judge()

    def loads(self, topic: str) -> list[QueueLoad]:
        """The loads of the subscribers that are owed a topic's events."""
        return [self._loads[name] for name in self._index.match(topic)]

    def limit(self, load: QueueLoad, priority: int) -> int:
        """How many events may wait when one of this priority arrives; fewer if it may not use the reserve."""
        limits = [self._rules.queue_events_max] if self._rules.queue_events_max else []
        if self._rules.queue_bytes_max and load.seen_events:
            limits.append(self._rules.queue_bytes_max * load.seen_events // max(load.seen_bytes, 1))
        share = 100 if priority >= RESERVED_FROM else 100 - self._rules.reserve_percent
        return min(limits) * share // 100 if limits else 1 << 62

    def came(self, load: QueueLoad, head: Head) -> None:
        """A batch is owed: count it before any of its events can end."""
        load.note(head)
        load.events += head.count
        if self._rules.of(head.topic).overflow == "drop_oldest":
            load.line.append(((head.topic, head.source), head.first, head.stop))

    def excess(self, load: QueueLoad, head: Head) -> int:
        """How many events wait over the limit for a batch of this topic and priority."""
        if self._rules.of(head.topic).overflow == "withhold":
            return 0
        return max(load.events - self.limit(load, head.priority), 0)

    def swept(self, load: QueueLoad, head: Head) -> None:
        """A batch from before this node started is owed; it was counted before, but its size was not known."""
        load.note(head)
        if self._rules.of(head.topic).overflow == "drop_oldest":
            load.swept.append(((head.topic, head.source), head.first, head.stop))

    def oldest(self, load: QueueLoad) -> tuple[Series, Range] | None:
        """Take the events that could be dropped next; they may have ended meanwhile."""
        line = load.swept or load.line
        if not line:
            return None
        series, start, stop = line.popleft()
        return series, (start, stop)

    def put_back(self, load: QueueLoad, series: Series, bounds: Range) -> None:
        """Only a part of the oldest range had to be dropped."""
        (load.swept or load.line).appendleft((series, *bounds))

    def ended(self, name: str, rows: Sequence[OutcomeRow]) -> None:
        """Events ended for a subscriber."""
        load = self._loads.get(name)
        if load is not None:
            load.events = max(load.events - sum(row.stop - row.start for row in rows), 0)

    def judge(self) -> Withhold | None:
        """Whether publishers have to wait, or some of them may continue; None: as before."""
        self.full &= self._loads.keys()
        for load in self._loads.values():
            self._judge(load)
        announced, self._announced = self._announced, set(self.full)
        return None if announced == self.full else Withhold(bool(self.full), bool(announced - self.full))

    def _judge(self, load: QueueLoad) -> None:
        limit = self.limit(load, RESERVED_FROM - 1)
        if load.events >= limit and not load.name.startswith(COPIES):
            self.full.add(load.name)
        elif load.events * 100 <= limit * AGAIN_PERCENT:
            self.full.discard(load.name)

    def refuses(self, topic: str, priority: int) -> str:
        """Why events on a topic have to wait at their publisher; empty if they need not."""
        if not self.full or self._rules.of(topic).overflow != "withhold":
            return ""
        for name in self._index.match(topic):
            load = self._loads[name]
            is_urgent = priority >= RESERVED_FROM and load.events < self.limit(load, priority)
            if name in self.full and not is_urgent:
                return f"{load.events:,} events wait for subscriber {name!r} (limits.queue_events_max, queue_bytes_max)"
        return ""
