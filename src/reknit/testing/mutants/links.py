"""Faults between nodes: links that carry too little, acknowledge too early, or go by routes that are not there."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

ROOM: Final = "reknit.protocol.links"
FLOWS: Final = f"{ROOM}.flows"
MACHINE: Final = f"{ROOM}.machine"
TABLE: Final = f"{ROOM}.forwarding_table"
ROUTES: Final = "reknit.protocol.routing.routes"

MUTANTS: Final = (
    Mutant(
        name="removed-events-are-not-told",
        module=MACHINE,
        old="                if first < one.stop and self.table.is_owed(name, series):",
        new="                if first < 0 and self.table.is_owed(name, series):",
        breaks="a neighbour is told of events that retention removed before they were carried",
        simulation="fabric",
    ),
    Mutant(
        name="losses-are-not-told-again",
        module=FLOWS,
        old="        self._missed.tell_again(self._name)\n",
        new="",
        breaks="a neighbour is told of losses until it has recorded them",
        simulation="fabric",
    ),
    Mutant(
        name="link-acknowledges-before-the-sync",
        module=FLOWS,
        old="        part.batches_open += len(batches)",
        new="        part.batches_open += 0",
        breaks="a node acknowledges a neighbour's events when they are durable",
        simulation="fabric",
    ),
    Mutant(
        name="run-of-one-batch-is-not-sent",
        module=FLOWS,
        old="        if low >= 0:\n            pieces.append(run.cut(low, len(run.entries)))",
        new="        if low > 0:\n            pieces.append(run.cut(low, len(run.entries)))",
        breaks="a neighbour gets every event that is wanted there",
        simulation="fabric",
    ),
    Mutant(
        name="lost-spare-stops-the-link",
        module=FLOWS,
        old="        if line == self._line:\n            self._left_at",
        new="        if line:\n            self._left_at",
        breaks="a link goes on over the line on which its events were requested",
        simulation="fabric",
    ),
    Mutant(
        name="link-resumes-at-the-end",
        module=FLOWS,
        old="            self._cursor = max(wanted.position, journal.start)",
        new="            self._cursor = journal.end",
        breaks="after a link was down, a node gets what it missed",
        simulation="fabric",
    ),
    Mutant(
        name="origin-is-guessed",
        module=TABLE,
        old="        return None if is_back or source in self._unsure else self.of(source)",
        new="        return None if is_back else self.of(source)",
        breaks="a node tells no origin that a crash may have undone",
        simulation="fabric",
    ),
    Mutant(
        name="away-subscribers-are-not-announced",
        module=TABLE,
        old="        wanted |= {one.pattern.text for name, one in accounts if not name.startswith(ANYCAST)}\n",
        new="",
        breaks="events for a durable subscriber that is away are carried to its node",
        simulation="fabric",
    ),
    Mutant(
        name="last-route-is-forgotten",
        module=TABLE,
        old="nodes, with_lost=True, with_away=with_away)",
        new="nodes, with_lost=False, with_away=with_away)",
        breaks="events for a node that can't be reached go as far as possible",
        simulation="fabric",
    ),
    Mutant(
        name="known-nodes-are-forgotten",
        module="reknit.node.links.links",
        old="            self._file.value.nodes,",
        new="            {},",
        breaks="events for a node that is away are carried towards it, also after a restart of all others",
        simulation="fabric",
    ),
    Mutant(
        name="stale-forwarding-table",
        module=MACHINE,
        old="            self.table.forget()\n",
        new="",
        breaks="a new subscription elsewhere is served",
        simulation="fabric",
    ),
    Mutant(
        name="no-look-back",
        module=MACHINE,
        old="        if has_new_routes:\n            position",
        new="        if False:\n            position",
        breaks="events that were passed over while a route was gone are carried later",
        simulation="fabric",
    ),
    Mutant(
        name="outcome-is-not-returned",
        module=MACHINE,
        old="                self._returns.add(str(peer), message)",
        new="                pass",
        breaks="a node hears the outcome of every event that it forwarded",
        simulation="fabric",
    ),
    Mutant(
        name="subscriptions-are-not-announced",
        module=ROUTES,
        old="        if new or gone:\n            own.change_interests()",
        new="        if gone:\n            own.change_interests()",
        breaks="all nodes know the subscriptions of each",
        simulation="fabric",
    ),
)
