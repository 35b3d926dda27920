"""The checks of a campaign: each compares what was observed from two sides, and returns what does not agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from reknit.seqset import SeqSet
from reknit.testing.chaos.fabric import REJECT_EVERY
from reknit.testing.chaos.injector import tail
from reknit.testing.chaos.observation import LEDGER_COLUMNS, Observation, Row
from reknit.testing.chaos.record import Published, Received

Key = tuple[str, str, str]
"""A node, a subscriber and a topic."""
ENDS: Final = ("accepted", "dead_lettered", "lost")
RANGES_MAX = 5
TRACEBACK = "Traceback (most recent call last)"


def everything_ended(seen: Observation) -> Iterator[str]:
    """After everything has healed, no event is in flight, and every publisher finished."""
    for name, published in seen.published.items():
        if not published.is_done:
            yield f"{name} did not finish: {tail(seen.fabric.clients[name], 4)}"
    yield from seen.open_pairs()


def stored_events_stay_stored(seen: Observation) -> Iterator[str]:
    """A publisher that resumes finds everything that it was told is stored."""
    for name, published in seen.published.items():
        yield from (f"{name}: {text}" for text in published.complaints)


def every_event_arrived(seen: Observation) -> Iterator[str]:
    """A subscriber got every event that was stored, by its own count, or the ledger says that it is lost to it."""
    for subscriber, publisher in seen.owed():
        missing, row = seen.missing(subscriber, publisher), seen.row(subscriber, publisher)
        lost = row["lost"] if row else seen.received[subscriber.name].lost_on(publisher.topic)
        if missing.count > lost:
            in_flight = row["in_flight"] if row else 0
            yield (
                f"{subscriber.name} never got {missing.count} events of {publisher.name} ({ranges(missing)}), "
                f"{lost} are known to be lost, and {in_flight} are in flight"
            )


def nothing_is_lost_without_cause(seen: Observation) -> Iterator[str]:
    """Events are lost only if a journal was damaged."""
    if not seen.is_damaged:
        for (node, subscriber, topic), row in seen.ledgers.items():
            if row["lost"]:
                yield f"{row['lost']} events on {topic} are lost to {subscriber} of {node}, and no journal was damaged"


def ledgers_balance(seen: Observation) -> Iterator[str]:
    """On every node, published = accepted + dead-lettered + lost + in flight."""
    for (node, subscriber, topic), row in seen.ledgers.items():
        if not row["balanced"]:
            yield f"{subscriber} of {node} on {topic} does not balance: {row}"


def ledgers_agree_with_subscribers(seen: Observation) -> Iterator[str]:
    """The ledger counts as ended what the subscriber recorded: no event more, and none less."""
    for subscriber, publisher in seen.owed():
        row = seen.row(subscriber, publisher)
        if row is None or not subscriber.has_ids:
            continue
        count = seen.received[subscriber.name].count_on(publisher.topic)
        ended = row["accepted"] + row["dead_lettered"]
        if not ended <= count <= ended + row["lost"]:
            facts = {name: row[name] for name in LEDGER_COLUMNS}
            yield f"{subscriber.name} recorded {count} events of {publisher.topic}, and the ledger has {facts}"


def ledgers_agree_with_publishers(seen: Observation) -> Iterator[str]:
    """The ledger counts as published what was published: exactly, if the publisher repeats nothing."""
    for subscriber, publisher in seen.owed():
        row, last = seen.row(subscriber, publisher), seen.published[publisher.name].last
        if row is not None and publisher.once and row["published"] != last:
            yield (
                f"{publisher.name} published {last} events, and the ledger of {subscriber.node} has "
                f"{row['published']} for {subscriber.name}"
            )


def rejected_events_are_dead_letters(seen: Observation) -> Iterator[str]:
    """Every event that was rejected is a dead letter, and no other."""
    for subscriber, publisher in seen.owed():
        row = seen.row(subscriber, publisher)
        if row is None or row["lost"] or not publisher.once:
            continue
        wanted = seen.published[publisher.name].last // REJECT_EVERY if subscriber.name == "strict" else 0
        if row["dead_lettered"] != wanted:
            yield (
                f"{subscriber.name} rejected {wanted} events of {publisher.name}, "
                f"and the ledger has {row['dead_lettered']} dead letters"
            )


def readers_get_each_event_once(seen: Observation) -> Iterator[str]:
    """A reader that resumes gets no event twice, if its publisher repeats nothing."""
    for subscriber, publisher in seen.owed():
        repeated = seen.received[subscriber.name].repeated
        if not subscriber.ledger_name and publisher.once and repeated:
            yield f"{subscriber.name} got {repeated} events of {publisher.name} again"


def accepted_orders_were_accepted(seen: Observation) -> Iterator[str]:
    """A sender is told ACCEPTED only if a worker got its order."""
    fabric = seen.fabric
    if "order" not in fabric.clients:
        return
    sent = Published.read(fabric.record("order"))
    got = SeqSet()
    for name in ("work1", "work2"):
        got = got.union(Received.read(fabric.record(name)).numbers.get("order", SeqSet()))
    missing = [
        number for number, outcome in sent.outcomes.items() if outcome == "ACCEPTED" and number not in got
    ]
    if missing:
        yield f"{len(missing)} orders are said to be accepted, and no worker got them: {missing[:10]}"


def audit_agrees_with_ledgers(seen: Observation) -> Iterator[str]:
    """The pipeline's audit balances, and has the rows of the nodes' ledgers.

    Its problems are those of a damaged journal: events or outcomes that the pipeline had not captured are gone from it.
    """
    if seen.audit is None:
        return
    events, outcomes, problems = _explained(seen)
    for problem in problems[:RANGES_MAX]:
        yield f"the audit finds a problem: {problem}"
    rows = {(row["node"], row["subscriber"], row["topic"]): row for row in seen.audit["rows"]}
    for key, row in seen.ledgers.items():
        if not key[2].startswith("chaos/"):
            continue
        audited = rows.get(key, dict.fromkeys(LEDGER_COLUMNS, 0))
        there, here = ({name: one[name] for name in LEDGER_COLUMNS} for one in (audited, row))
        there["published"] += events[key]
        there["in_flight"] -= outcomes[key]
        ended = sum(here[name] - there[name] for name in ENDS)
        compared = ("published", "in_flight") if outcomes[key] else LEDGER_COLUMNS
        if ended != outcomes[key] or any(there[name] != here[name] for name in compared):
            yield f"{' '.join(key)}: the audit has {audited}, and the ledger {here}"


def _explained(seen: Observation) -> tuple[Counter[Key], Counter[Key], list[Row]]:
    """The events and the outcomes of each row that damage took, and the problems that it does not explain."""
    events, outcomes = Counter[Key](), Counter[Key]()
    problems: list[Row] = []
    for problem in seen.audit["problems"] if seen.audit is not None else ():
        key, damage = (problem["node"], problem["subscriber"], problem["topic"]), seen.damage(problem["node"])
        size = problem["stop"] - problem["start"]
        if damage is not None and damage.lost_events(problem) == size:
            events[key] += size
        elif damage is not None and damage.lost_outcomes(problem) == size:
            outcomes[key] += size
        else:
            problems.append(problem)
    return events, outcomes, problems


def tables_have_every_event(seen: Observation) -> Iterator[str]:
    """Table `events` has every event that was stored, unless it is in the audit's losses."""
    if seen.audit is None:
        return
    for name, published in seen.published.items():
        missing = SeqSet.from_ranges(seen.tables.get(name, SeqSet()).missing(1, published.last + 1))
        if missing.count > seen.audit["lost"]:
            yield f"the tables lack {missing.count} events of {name} ({ranges(missing)})"


def no_traceback_is_logged(seen: Observation) -> Iterator[str]:
    """Whatever happens, no process logs an internal error."""
    for process in seen.fabric.processes():
        text = process.output()
        if (at := text.find(TRACEBACK)) >= 0:
            yield f"{process.name} logged an error: {text[max(0, at - 300) : at + 2500]}"


CHECKS: Final[tuple[Callable[[Observation], Iterator[str]], ...]] = (
    everything_ended,
    stored_events_stay_stored,
    every_event_arrived,
    nothing_is_lost_without_cause,
    ledgers_balance,
    ledgers_agree_with_subscribers,
    ledgers_agree_with_publishers,
    rejected_events_are_dead_letters,
    readers_get_each_event_once,
    accepted_orders_were_accepted,
    audit_agrees_with_ledgers,
    tables_have_every_event,
    no_traceback_is_logged,
)


def findings(seen: Observation) -> list[str]:
    """What any check found, with its name."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(seen)]


def ranges(seqs: SeqSet) -> str:
    """A few of the ranges, as text.

    >>> ranges(SeqSet.from_ranges([(1, 2), (5, 8)]))
    '1, 5 to 7'
    """
    shown = [str(start) if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in seqs.ranges()]
    return ", ".join(shown[:RANGES_MAX]) + (", …" if len(shown) > RANGES_MAX else "")
