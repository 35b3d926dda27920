"""`reknit ledger` of very many topics: what matters first, and sums of all."""

from __future__ import annotations

from typing import Any

import pytest

from reknit.cli.ledger import print_ledger, select, sums


def row(topic: str, in_flight: int, balanced: bool = True, subscriber: str = "audit") -> dict[str, Any]:
    return {
        "subscriber": subscriber,
        "topic": topic,
        "published": 10,
        "accepted": 10 - in_flight,
        "dead_lettered": 0,
        "lost": 0,
        "in_flight": in_flight,
        "problems": [] if balanced else ["01 [3, 4) has not ended and is not in flight"],
        "balanced": balanced,
    }


ROWS = [row("a", 1), row("b", 5), row("c", 0, balanced=False), row("d", 3), row("e", 4, subscriber="late")]


def test_rows_that_do_not_balance_come_first_then_those_with_the_most_in_flight() -> None:
    assert [one["topic"] for one in select(ROWS, 3)] == ["c", "b", "e"]
    assert select(ROWS, 5) == ROWS
    assert select(ROWS, 0) == ROWS


def test_sums_are_over_all_topics_of_a_subscriber() -> None:
    audit, late = sums(ROWS)
    assert (audit["topics"], audit["published"], audit["in_flight"], audit["balanced"]) == (4, 40, 9, False)
    assert (late["topics"], late["published"], late["in_flight"], late["balanced"]) == (1, 10, 4, True)


def test_a_cut_table_says_so_and_a_problem_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_ledger([row(f"t/{number}", 1) for number in range(5000)] + [row("z", 0, balanced=False)], 10)
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 30
    assert "10 of 5,001 rows" in text
    assert "has not ended and is not in flight" in text
    assert "(5,001 topics)" in text
    assert "the ledger does not balance" in text


def test_a_short_table_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_ledger([row("a", 1), row("b", 2)], 100)
    text = capsys.readouterr().out
    assert "rows;" not in text
    assert "balanced: published" in text
