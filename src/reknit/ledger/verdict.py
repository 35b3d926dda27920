"""The ledger in one sentence, for people: the console, `reknit status` and the demo say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Mood = Literal["", "good", "lost"]


class Verdict(NamedTuple):
    """Whether every event is accounted for."""

    mood: Mood
    text: str


def verdict(totals: Mapping[str, int], subscribers: int) -> Verdict:
    """The sentence for the sums of a ledger.

    >>> verdict({"lost": 0, "unbalanced": 0}, 3).text
    'Every event is accounted for'
    >>> verdict({"lost": 1, "unbalanced": 0}, 3).text
    '1 event is lost, and it is known which'
    """
    lost, unbalanced = totals["lost"], totals["unbalanced"]
    if not subscribers:
        return Verdict("", "Nobody is owed an event yet")
    if unbalanced:
        return Verdict("lost", f"The ledger does not balance in {unbalanced:,} row{'s' * (unbalanced != 1)}")
    if lost == 1:
        return Verdict("lost", "1 event is lost, and it is known which")
    if lost:
        return Verdict("lost", f"{lost:,} events are lost, and it is known which")
    return Verdict("good", "Every event is accounted for")
