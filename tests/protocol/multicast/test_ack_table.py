"""The ack table, against the cases of its specification and a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.protocol.multicast.ack_table import AckTable


def test_minimum_over_members_rises_with_the_slowest() -> None:
    acks = AckTable({"A": 0, "B": 0, "C": 0})
    seen = [(acks.ack(*ack), acks.minimum) for ack in [("A", 10), ("B", 7), ("C", 5)]]
    assert seen == [(False, 0), (False, 0), (True, 5)]


def test_highest_ack_wins() -> None:
    acks = AckTable({"A": 10, "B": 7, "C": 5})
    assert not acks.ack("C", 4)
    assert acks.minimum == 5


def test_ack_of_a_non_member_is_ignored() -> None:
    acks = AckTable({"A": 10, "B": 7, "C": 5})
    assert not acks.ack("D", 9)
    assert "D" not in acks


def test_leaver_no_longer_holds_the_minimum_down() -> None:
    acks = AckTable({"A": 10, "B": 7, "C": 5})
    assert acks.leave("C")
    assert acks.minimum == 7


def test_a_joiner_starts_at_its_seq_and_the_minimum_does_not_fall() -> None:
    acks = AckTable({"A": 10, "B": 7})
    acks.join("D", 10)
    assert (acks.minimum, acks["D"]) == (7, 10)
    acks.ack("B", 10)
    assert acks.minimum == 10


def test_members_that_everyone_waits_for_are_known() -> None:
    acks = AckTable({"A": 10, "B": 7, "C": 7})
    assert acks.lowest() == ["B", "C"]
    assert acks.all_have(7)
    assert not acks.all_have(8)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ack", "join", "leave"]), st.sampled_from("ABCD"), st.integers(0, 50))
    )
)
def test_minimum_is_the_lowest_ack_and_never_falls(steps: list[tuple[str, str, int]]) -> None:
    acks, model, before = AckTable({"me": 50, "A": 0, "B": 0}), {"me": 50, "A": 0, "B": 0}, 0
    for what, member, seq in steps:
        if what == "ack":
            acks.ack(member, seq)
            model |= {member: max(seq, model[member])} if member in model else {}
        elif what == "join":
            start = max(seq, acks.minimum)
            acks.join(member, start)
            model.setdefault(member, start)
        else:
            acks.leave(member)
            model.pop(member, None)
        assert acks.minimum == max(before, min(model.values(), default=before))
        before = acks.minimum
