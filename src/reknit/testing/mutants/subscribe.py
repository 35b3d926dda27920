"""Faults in subscribing: what an application gets, and what becomes of its outcomes."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

ROOM: Final = "reknit.protocol.subscribe"
SUBSCRIBER: Final = f"{ROOM}.subscriber"
NODE_SUBSCRIPTION: Final = f"{ROOM}.node_subscription"
BUFFER: Final = f"{ROOM}.outcome_buffer"
CREDIT: Final = f"{ROOM}.credit_window"

MUTANTS: Final = (
    Mutant(
        name="outcomes-not-repeated",
        module=NODE_SUBSCRIPTION,
        old="        for message in self.outcomes.unconfirmed():\n            self.emit(SendToNode(message))\n",
        new="",
        breaks="an outcome is sent until the node has stored it",
    ),
    Mutant(
        name="outcome-confirmed-too-soon",
        module=BUFFER,
        old="while self._unconfirmed and self._unconfirmed[0].number <= number:",
        new="while self._unconfirmed and self._unconfirmed[0].number <= number + 1:",
        breaks="an outcome is sent until the node has stored it",
    ),
    Mutant(
        name="outcome-extends-a-stranger",
        module=BUFFER,
        old="    is_same = row.stop == start and row.outcome == outcome and not row.text",
        new="    is_same = row.outcome == outcome and not row.text",
        breaks="an application's outcomes cover the events that it settled, and no other",
    ),
    Mutant(
        name="repeated-delivery-not-dropped",
        module=SUBSCRIBER,
        old="        if batch.stop <= expected:\n            return late",
        new="        if batch.stop <= expected:\n            return [batch]",
        breaks="an application gets an event once",
    ),
    Mutant(
        name="overlapping-delivery-not-cut",
        module=SUBSCRIBER,
        old="        return [*late, batch if batch.first >= expected else batch.cut(expected, batch.stop)]",
        new="        return [batch]",
        breaks="an application gets an event once, also beside new ones",
    ),
    Mutant(
        name="gap-not-reported",
        module=SUBSCRIBER,
        old="            self._lose(series, start, stop, GAP_REASON)\n",
        new="            pass\n",
        breaks="an application is told of events that it will never get",
    ),
    Mutant(
        name="gap-reported-twice",
        module=f"{ROOM}.series_progress",
        old="            for low, high in known.missing(*bounds):",
        new="            for low, high in [bounds]:",
        breaks="a loss is reported once",
    ),
    Mutant(
        name="window-freed-early",
        module=CREDIT,
        old='        """Bytes arrived within the credit, for the application."""\n        self._buffered += size',
        new='        """Bytes arrived within the credit, for the application."""\n        self._owed += size',
        breaks="what an application has not taken fills its window",
    ),
    Mutant(
        name="window-never-freed",
        module=CREDIT,
        old='        """Bytes arrived within the credit that the application does not get."""\n'
        "        self._owed += size",
        new='        """Bytes arrived within the credit that the application does not get."""',
        breaks="bytes that were dropped free the window",
    ),
    Mutant(
        name="revocation-ignored",
        module=SUBSCRIBER,
        old="                self._held.revoke((topic, source), start, stop)",
        new="                pass",
        breaks="an event whose lease ran out is delivered again",
    ),
    Mutant(
        name="returned-events-forgotten",
        module=SUBSCRIBER,
        old="        self.node.outcomes.release_again(self._held.returning())\n",
        new="",
        breaks="an event that was given back comes again after a reconnection",
    ),
    Mutant(
        name="position-ahead-of-the-events",
        module=f"{ROOM}.resume_point",
        old="            seen = checkpoint if self._is_overtaken and not is_durable else None",
        new="            seen = None",
        breaks="an application gets an event once, also if others overtook it",
    ),
    Mutant(
        name="held-events-not-named",
        module=SUBSCRIBER,
        old="            for part in self._recovered.seqs_of(series).missing(*bounds)\n",
        new="            for part in self._recovered.seqs_of(series).missing(*bounds)[:0]\n",
        breaks="an event that an application has is not delivered again",
    ),
    Mutant(
        name="settled-twice",
        module="reknit.protocol.series_seqs",
        old="        if ranges:\n            seqs.discard(start, stop)\n",
        new="        if ranges:\n            seqs.discard(start, stop - 1)\n",
        breaks="only events that an application has can be settled, and only once",
    ),
    Mutant(
        name="recovered-event-comes-twice",
        module=f"{ROOM}.recovered_in_flight",
        old="        self._scheduled = [row for row in self._scheduled if row[0] > now]",
        new="        self._scheduled = [row for row in self._scheduled if row[0] > now - 0.2]",
        breaks="a recovered event that was given back comes again once",
    ),
)
