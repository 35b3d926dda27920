"""What is known at the end of a campaign, from three sides: the clients' records, the ledgers, and the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reknit.client.blocking.session import connect_sync
from reknit.errors import ReknitError
from reknit.seqset import SeqSet
from reknit.testing.chaos.damage import Damage
from reknit.testing.chaos.fabric import Fabric, Publisher, Subscriber
from reknit.testing.chaos.record import Published, Received
from reknit.topic import Pattern

Row = dict[str, Any]
LEDGER_COLUMNS = ("published", "accepted", "dead_lettered", "lost", "in_flight")


@dataclass
class Observation:
    """Everything that `checks.py` compares."""

    fabric: Fabric
    published: dict[str, Published] = field(default_factory=dict)
    received: dict[str, Received] = field(default_factory=dict)
    ledgers: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    """The rows of all ledgers, by node, subscriber and topic."""
    audit: Row | None = None
    """Of the pipeline, if there is one."""
    tables: dict[str, SeqSet] = field(default_factory=dict)
    """The pipeline's table `events`: numbers by publisher."""
    _damage: dict[str, Damage] = field(default_factory=dict)

    def owed(self) -> Iterator[tuple[Subscriber, Publisher]]:
        """Every subscriber with each publisher whose events it is owed."""
        for subscriber in self.fabric.subscribers:
            pattern = Pattern(subscriber.pattern)
            for publisher in self.fabric.publishers:
                if pattern.matches(publisher.topic) and reaches(publisher, subscriber):
                    yield subscriber, publisher

    def row(self, subscriber: Subscriber, publisher: Publisher) -> Row | None:
        """The row of the ledger about these two."""
        return self.ledgers.get((subscriber.node, subscriber.ledger_name, publisher.topic))

    def missing(self, subscriber: Subscriber, publisher: Publisher) -> SeqSet:
        """The numbers that were stored and that the subscriber never recorded."""
        numbers = self.received[subscriber.name].numbers.get(publisher.name, SeqSet())
        last = self.published[publisher.name].last
        # A reader without a durable name is owed what came after its first event.
        first = numbers.first if numbers and not subscriber.ledger_name else 1
        return SeqSet.from_ranges(numbers.missing(first, last + 1))

    @property
    def is_damaged(self) -> bool:
        """Whether any journal was damaged."""
        return any(node.damaged_segments for node in self.fabric.nodes.values())

    def damage(self, node: str) -> Damage | None:
        """What a damaged journal no longer has; None if that of this node was not damaged."""
        process = self.fabric.nodes.get(node)
        if node not in self._damage and process is not None and process.damaged_segments:
            self._damage[node] = Damage(process.data)
        return self._damage.get(node)

    def is_settled(self) -> bool:
        """Whether everything has ended that could."""
        return all(one.is_done for one in self.published.values()) and not any(self.open_pairs())

    def open_pairs(self) -> Iterator[str]:
        """Those pairs whose events have not all ended, as text."""
        for subscriber, publisher in self.owed():
            row, last = self.row(subscriber, publisher), self.published[publisher.name].last
            if not subscriber.ledger_name:
                numbers = self.received[subscriber.name].numbers.get(publisher.name, SeqSet())
                if last and last not in numbers:
                    yield f"{subscriber.name} has not read {publisher.name}:{last}"
            elif last and (row is None or row["published"] < last or row["in_flight"]):
                facts = {name: row[name] for name in LEDGER_COLUMNS} if row else "no row"
                yield f"{subscriber.name} of {subscriber.node}, {publisher.topic}: {last} stored, ledger {facts}"


def reaches(publisher: Publisher, subscriber: Subscriber) -> bool:
    """Whether the subscriber's node gets the publisher's events."""
    return True


def observe(fabric: Fabric) -> Observation:
    """Read the records and ask the nodes."""
    found = Observation(fabric)
    for publisher in fabric.publishers:
        found.published[publisher.name] = Published.read(fabric.record(publisher.name))
    for subscriber in fabric.subscribers:
        found.received[subscriber.name] = Received.read(fabric.record(subscriber.name))
    for name, node in fabric.nodes.items():
        try:
            with connect_sync(node.url, wait_s=10) as session:
                for row in session.ledger():
                    found.ledgers[name, row["subscriber"], row["topic"]] = row
        except ReknitError:
            continue
    return found
