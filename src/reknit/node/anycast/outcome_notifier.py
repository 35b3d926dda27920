"""Tells publishers the outcomes of their events, and whether there is a subscriber for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from reknit.batch import SEQ_MAX
from reknit.config import Config
from reknit.ledger import Series
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.ledger import AnycastLedger
from reknit.outcome import Code, FinalOutcome, Outcome
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.machine import Peer
from reknit.store.journal import Journal
from reknit.wire.messages import Message, Refuse
from reknit.wire.outcomes import PathThere, RangeOutcome, Told, Want


class ToldSender(Protocol):
    """A gateway's sender that is told the outcomes of its events."""

    def tell(self, fates: list[RangeOutcome]) -> None:
        """Outcomes came."""

    def path(self, has_path: bool) -> None:
        """There is a subscriber for the topic, or no subscriber any more."""


class OutcomeWatcher(msgspec.Struct):
    """A publisher that is told the outcomes of a source's events: over a connection, or a gateway's sender."""

    topic: str
    resend: bool
    peer: Peer = 0
    sender: ToldSender | None = None
    has_path: bool | None = None


class OutcomeNotifier:
    """Collects the outcomes that one node has to tell its publishers, until `take_told`."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        journal: Journal,
        machine: AnycastMachine,
        distributions: Distributions,
        ledger: AnycastLedger,
        say: Callable[[Peer, Message], None],
    ) -> None:
        self._sources_max = config.limits.sources_max
        self._node_name = node_name
        self._journal = journal
        self._say = say
        self._machine = machine
        self._distributions = distributions
        self._ledger = ledger
        self.watchers: dict[bytes, OutcomeWatcher] = {}
        """By source."""
        self.told: dict[bytes, list[RangeOutcome]] = {}
        """By source: outcomes that `take_told` returns next."""
        self.is_due = False
        """Whether paths have changed since `tell_paths`."""

    def paths_changed(self) -> None:
        """Paths came or went, here or elsewhere."""
        self.is_due = True

    # -- watchers

    def want(self, want: Want, peer: Peer) -> None:
        """A publisher wants the outcomes of its events; those that are in the ledger are the first to tell."""
        self.told.pop(want.source, None)
        sources_max = self._sources_max
        if want.source not in self.watchers and len(self.watchers) >= sources_max:
            text = f"the node already reports outcomes to {sources_max} sources (limits.sources_max)"
            self._say(peer, Refuse(want.source, 1, 1, Code.RESOURCE_EXHAUSTED, text))
            return
        is_journal = self._distributions.of(want.topic) == JOURNAL
        has_path = self.has_path(want.topic)
        self.watchers[want.source] = OutcomeWatcher(want.topic, want.resend, peer, has_path=has_path)
        if not is_journal:
            self._tell_past((want.topic, want.source), want)
        self._say(peer, PathThere(want.source, has_path, is_journal))

    def watch(self, source: bytes, watcher: OutcomeWatcher) -> None:
        """A gateway's sender wants the outcomes of its events."""
        self.watchers[source] = watcher

    def forget(self, source: bytes) -> None:
        """The outcomes of a source are not wanted any more."""
        self.watchers.pop(source, None)

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        for source in [source for source, one in self.watchers.items() if one.peer == peer]:
            del self.watchers[source]

    def has_path(self, topic: str) -> bool:
        """Whether events can be taken: into the journal, or along a path."""
        return self._distributions.of(topic) == JOURNAL or self._machine.has_path(topic)

    # -- outcomes

    def tell(self, source: bytes, fate: RangeOutcome) -> None:
        """Events have an outcome; a watcher of their source is told."""
        if source in self.watchers:
            self.told.setdefault(source, []).append(fate)

    def _tell_past(self, series: Series, want: Want) -> None:
        """Also of events whose storage the publisher did not hear of: it sends them again, and they are duplicates."""
        for start, end, how in self._ledger.ends(series, want.first, SEQ_MAX):
            is_accepted = how is FinalOutcome.ACCEPTED
            outcome = Outcome.ACCEPTED if is_accepted else Outcome.MODIFIED
            text = "" if is_accepted else "it ended meanwhile, see the dead letters"
            self.tell(series[1], RangeOutcome(start, end, outcome, 0, text, self._node_name))
        published = self._journal.ledger.published.get(series)
        text = "it is not in this node's journal"
        stop = max(want.kept + 1, want.first)
        if want.first < stop:
            missing = published.missing(want.first, stop) if published else [(want.first, stop)]
            for start, end in missing:
                self.tell(
                    series[1], RangeOutcome(start, end, Outcome.MODIFIED, Code.UNKNOWN, text, self._node_name)
                )

    def take_told(self) -> dict[bytes, list[RangeOutcome]]:
        """The outcomes to tell, once the record of them is durable."""
        told, self.told = self.told, {}
        return told

    def tell_all(self, told: dict[bytes, list[RangeOutcome]]) -> None:
        """Tell the watchers of these sources."""
        for source, fates in told.items():
            watcher = self.watchers.get(source)
            if watcher is None:
                continue
            if watcher.sender is not None:
                watcher.sender.tell(fates)
            else:
                self._say(watcher.peer, Told(source, fates))

    def tell_paths(self) -> None:
        """Tell the watchers whose topic has a subscriber now, or none any more."""
        self.is_due = False
        known: dict[str, bool] = {}
        for source, watcher in self.watchers.items():
            has_path = known.get(watcher.topic)
            if has_path is None:
                has_path = known[watcher.topic] = self.has_path(watcher.topic)
            if has_path == watcher.has_path:
                continue
            watcher.has_path = has_path
            if watcher.sender is not None:
                watcher.sender.path(has_path)
            else:
                self._say(watcher.peer, PathThere(source, has_path))
