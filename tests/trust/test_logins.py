"""Logins end at their deadline, or when their proof no longer holds, and cost nothing before."""

from __future__ import annotations

from reknit.trust.identities import NOBODY, Identity
from reknit.trust.logins import SPARE, Client, Logins


class Visitor:
    """A connection that notes why it was closed."""

    def __init__(self, proof: Identity) -> None:
        self.proof = proof
        self.why = ""

    def expel(self, why: str) -> None:
        assert not self.why, "once"
        self.why = why


def visitor(logins: Logins, expires_us: int = 0, name: str = "ann") -> Visitor:
    made = Visitor(Identity(name, "token", f"of {name}", expires_us))
    logins.add(made)
    return made


class Court:
    """Finds some identities over, and others to expire at another time."""

    def __init__(self, *over: str, expires_us: int = 0) -> None:
        self._over = over
        self._expires_us = expires_us

    def objection(self, identity: Identity) -> str:
        return f"{identity.name} is over" if identity.name in self._over else ""

    def expires_us(self, identity: Identity) -> int:
        return self._expires_us


OVER = Court("ann")


def test_only_those_whose_time_is_over_are_disconnected() -> None:
    logins = Logins()
    late, soon, never = visitor(logins, 30), visitor(logins, 10), visitor(logins)
    logins.expire(9, OVER)
    assert (late.why, soon.why, never.why) == ("", "", "")
    logins.expire(10, OVER)
    assert (late.why, soon.why, never.why) == ("", "ann is over", "")
    logins.expire(1_000, OVER)
    assert (late.why, never.why) == ("ann is over", "")


def test_a_client_that_has_left_is_not_disconnected_again() -> None:
    logins = Logins()
    gone = visitor(logins, 10)
    logins.remove(gone)
    logins.remove(gone)
    logins.expire(20, OVER)
    assert gone.why == ""


def test_only_those_to_whom_there_is_an_objection_are_disconnected() -> None:
    logins = Logins()
    ann, bob = visitor(logins), visitor(logins, name="bob")
    logins.check(Court("bob"))
    assert (ann.why, bob.why) == ("", "bob is over")
    assert len(logins) == 1


def test_a_deadline_may_come_later_or_move() -> None:
    logins = Logins()
    ann, bob = visitor(logins), visitor(logins, 10, name="bob")
    logins.check(Court(expires_us=20))
    logins.expire(19, Court("ann", "bob"))
    assert (ann.why, bob.why) == ("", "")
    logins.expire(20, Court("ann", "bob"))
    assert (ann.why, bob.why) == ("ann is over", "bob is over")


def test_who_has_proven_nothing_is_not_kept() -> None:
    logins = Logins()
    logins.add(Visitor(NOBODY))
    assert len(logins) == 0


def test_deadlines_of_those_who_left_do_not_pile_up() -> None:
    logins = Logins()
    stays: list[Client] = [visitor(logins, 10**9) for _ in range(10)]
    for _ in range(1_000):
        logins.remove(visitor(logins, 10**9))
        assert len(logins._deadlines) <= 2 * len(stays) + SPARE + 1
    logins.expire(10**9, OVER)
    assert len(logins) == 0
