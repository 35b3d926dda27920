"""Offers the durable events of topics with a distribution to the anycast machine, in journal order."""

from __future__ import annotations

from collections.abc import Callable

from reknit.batch import Batch
from reknit.config import AnycastSettings
from reknit.errors import Gone
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.ledger import AnycastLedger
from reknit.node.anycast.local_paths import LocalPaths
from reknit.node.anycast.outcome_notifier import OutcomeNotifier
from reknit.node.core.journal_tail import JournalTail
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import OfferEvents
from reknit.store.journal import Journal


class JournalOffers:
    """Reads the journal behind a cursor, as far as there is room in memory for events that wait for a path."""

    def __init__(
        self,
        *,
        settings: AnycastSettings,
        journal: Journal,
        tail: JournalTail,
        distributions: Distributions,
        ledger: AnycastLedger,
        notifier: OutcomeNotifier,
        paths: LocalPaths,
        now_us: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._tail = tail
        self._distributions = distributions
        self._ledger = ledger
        self._notifier = notifier
        self._paths = paths
        self._now_us = now_us
        self._resumed_to = journal.end
        """Events before this position may have ended before the node was restarted."""
        self.cursor = journal.end
        """Events before this position were offered."""

    @property
    def is_behind(self) -> bool:
        """Whether durable events were not offered yet."""
        return self.cursor < self._journal.end

    def resume(self, position: int) -> None:
        """Offer events from the position of the last stop on."""
        self.cursor = position
        self.offer()

    def offer(self) -> None:
        """More of the journal is durable, or there is room again: offer the events to deliver."""
        settings, journal, machine = self._settings, self._journal, self._paths.machine
        distribution = self._distributions.of
        while (
            self._distributions.is_on
            and self.cursor < self._tail.end
            and machine.held_bytes < settings.held_bytes_max
            and machine.parked < settings.parked_max
        ):
            try:
                run = self._tail.read(self.cursor)
            except Gone:
                self.cursor = journal.start
                continue
            for gone in run.lost:
                self._ledger.lose((gone.topic, gone.source), gone.start, gone.stop)
            for index, entry in enumerate(run.entries):
                mode = distribution(entry.head.topic)
                if mode != JOURNAL:
                    self._offer(Batch(entry.head, run.cut(index, index + 1), entry.position), mode)
            self.cursor = run.next_position

    def _offer(self, batch: Batch, mode: str) -> None:
        series, head = (batch.topic, batch.source), batch.head
        watcher = self._notifier.watchers.get(batch.source)
        deadline = None
        if head.ttl_ms:
            left_us = head.time_us + head.ttl_ms * 1000 - self._now_us()
            deadline = self._paths.now() + left_us / 1e6
        resend, keeps = (watcher.resend, False) if watcher is not None else (True, True)
        ranges = [(head.first, head.stop)]
        if batch.position < self._resumed_to:
            ranges = self._ledger.owed(series, *ranges[0])
        for start, stop in ranges:
            self._ledger.start(batch.position, series, start, stop)
            offered = OfferEvents(
                batch.cut(start, stop),
                mode,
                resend,
                keeps=keeps,
                deadline=deadline,
                attempts_max=self._distributions.attempts_max(batch.topic),
            )
            self._paths.give(offered, HERE)
