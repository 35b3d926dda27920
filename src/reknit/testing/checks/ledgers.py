"""Checks of the ledger at rest: it balances, and every event ended as its application said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final

from reknit.ledger import Ledger, Series
from reknit.outcome import FinalOutcome
from reknit.seqset import SeqSet
from reknit.testing.checks.deliveries import name_of
from reknit.testing.checks.promise import promise

Ends = Mapping[FinalOutcome, SeqSet]
EXPIRY_S_MAX: Final = 1.0
"""How long after its ttl an event may wait."""


@promise(
    "The ledger of every node balances: published = accepted + dead-lettered + lost, and nothing is in flight."
)
def ledgers_balance(
    ledger: Ledger, in_hand: Mapping[str, Mapping[Series, SeqSet]], leaving: Set[str]
) -> Iterator[str]:
    """`in_hand` has what the dispatcher knows; `leaving` are subscribers that may be forgotten or not."""
    for row in ledger.rows(in_hand):
        if not row.balanced or (row.in_flight and row.subscriber not in leaving):
            yield f"the ledger has a row that is unbalanced or in flight: {row}"


@promise("An event ends once for each subscriber.")
def events_end_once(ledger: Ledger) -> Iterator[str]:
    for name, account in sorted(ledger.accounts.items()):
        for series, ends in account.ends.items():
            total = sum(seqs.count for seqs in ends.values())
            if account.ended(series).count != total:
                yield f"{name}: events of {name_of(series)} ended with more than one outcome"


@promise(
    "A subscriber gets every event that was published after its subscription was confirmed, or it is accounted for."
)
def owed_events_came(series: Series, owed: SeqSet, accounted_for: SeqSet) -> Iterator[str]:
    for start, stop in owed.difference(accounted_for).ranges():
        yield f"{name_of(series)} [{start}, {stop}) never came"


@promise("An outcome is stored before it is confirmed.")
def confirmed_outcomes_are_stored(series: Series, ended: SeqSet, start: int, stop: int) -> Iterator[str]:
    """`ended` has the events of the series that ended, as stored."""
    for low, high in ended.missing(start, stop):
        yield f"{name_of(series)} [{low}, {high}) has an outcome that was confirmed, and is not stored"


@promise("A subscriber that was told that it is forgotten is forgotten also after a crash.")
def forgotten_subscribers_are_gone(name: str, ledger: Ledger) -> Iterator[str]:
    """`ledger` is that of the journal that a crash would leave."""
    if name in ledger.accounts:
        yield f"{name} was told that it is forgotten, and a crash would bring it back"


@promise("Only events that the application accepted ended as accepted.")
def accepted_events_were_accepted(series: Series, ends: Ends, accepted: SeqSet) -> Iterator[str]:
    for start, stop in ends.get(FinalOutcome.ACCEPTED, SeqSet()).difference(accepted).ranges():
        yield f"{name_of(series)} [{start}, {stop}) was never accepted"


@promise("A dead-lettered event has a dead letter, and its reason is true.")
def dead_letters_are_true(
    series: Series, ends: Ends, problem_with: Callable[[Series, int], str]
) -> Iterator[str]:
    """`problem_with` says what is wrong with the dead letters of an event; empty if nothing is."""
    for start, stop in ends.get(FinalOutcome.DEAD_LETTERED, SeqSet()).ranges():
        for seq in range(start, stop):
            if problem := problem_with(series, seq):
                yield f"{name_of(series)} {seq} {problem}"


@promise("A dead letter is about an event that ended as one.")
def dead_letters_have_an_outcome(series: Series, ends: Ends, lettered: SeqSet) -> Iterator[str]:
    """This holds while no node crashes between a dead letter and its outcome."""
    for start, stop in lettered.difference(ends.get(FinalOutcome.DEAD_LETTERED, SeqSet())).ranges():
        yield f"{name_of(series)} [{start}, {stop}) has a dead letter, and did not end as one"


@promise("An event becomes a dead letter soon after its ttl, also if its subscriber is away.")
def waiting_events_expire(
    series: Series, waiting: SeqSet, due_s: Callable[[int], float], now: float
) -> Iterator[str]:
    """`waiting` has the events that did not end for a subscriber that is away; `due_s` says until when each lives."""
    for start, stop in waiting.ranges():
        for seq in range(start, stop):
            if now > due_s(seq) + EXPIRY_S_MAX:
                yield f"{name_of(series)} {seq} still waits {now - due_s(seq):.1f} s after its ttl"


@promise("Only retention loses events, and it spares those that are owed if it is told to.")
def nothing_is_lost_without_cause(series: Series, ends: Ends, may_lose: bool) -> Iterator[str]:
    for start, stop in () if may_lose else ends.get(FinalOutcome.LOST, SeqSet()).ranges():
        yield f"{name_of(series)} [{start}, {stop}) was lost, and nothing may be"
