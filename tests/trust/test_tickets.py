"""Tickets count once, for a short time, and there is a limit to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit import environment
from reknit.trust import tickets as trust
from reknit.trust.identities import Identity, Unauthenticated
from reknit.trust.tickets import LIFE_S, Tickets, TooManyTickets

ANN, BOB = Identity("ann", "token", "laptop"), Identity("bob", "token", "phone")


class Clock(environment.Environment):
    """Time that stands still until it is moved."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_a_ticket_counts_once() -> None:
    tickets = Tickets()
    one, two = tickets.issue(ANN), tickets.issue(BOB)
    assert (tickets.redeem(two), tickets.redeem(one)) == (BOB, ANN)
    for used in (one, two):
        with pytest.raises(Unauthenticated, match="used already"):
            tickets.redeem(used)


def test_a_ticket_is_forgotten_after_its_time() -> None:
    clock = Clock()

    def test() -> None:
        tickets = Tickets()
        old = tickets.issue(ANN)
        clock.now += LIFE_S / 2
        young = tickets.issue(ANN)
        clock.now += LIFE_S / 2
        with pytest.raises(Unauthenticated):
            tickets.redeem(old)
        assert tickets.redeem(young) == ANN
        assert len(tickets) == 0

    clock.run(test)


def test_one_identity_does_not_use_up_the_tickets_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "TICKETS_EACH_MAX", 3)
    monkeypatch.setattr(trust, "TICKETS_MAX", 5)
    tickets = Tickets()
    anns = [tickets.issue(ANN) for _ in range(3)]
    with pytest.raises(TooManyTickets):
        tickets.issue(ANN)
    tickets.issue(BOB)
    tickets.redeem(anns[0])
    tickets.issue(ANN)
    tickets.issue(BOB)
    with pytest.raises(TooManyTickets):
        tickets.issue(BOB)
    assert len(tickets) == 5


@given(st.text())
def test_no_other_text_is_a_ticket(text: str) -> None:
    tickets = Tickets()
    tickets.issue(ANN)
    with pytest.raises(Unauthenticated):
        tickets.redeem(text)
