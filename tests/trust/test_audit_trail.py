"""The audit trail, as a machine: what is written at once, what is summed up, and how much that can ever be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.audit import AuditEntry, write_entry
from reknit.trust.audit_trail import DAY_S, ENTRY_BYTES, KEYS_MAX, OTHERS, SUM_S, TEXT_CHARS_MAX, AuditTrail

DAY_BYTES = 1 << 20


def login(who: str = "eve", time_us: int = 0, address: str = "10.0.0.7") -> AuditEntry:
    return AuditEntry(
        kind="login", action="login", who=who, address=address, code="UNAUTHENTICATED", time_us=time_us
    )


def order(action: str = "pause", **details: str) -> AuditEntry:
    return AuditEntry(kind="order", action=action, who="root", details=details)


def test_the_first_is_written_at_once_and_its_repeats_as_one_sum() -> None:
    trail = AuditTrail(DAY_BYTES)
    for at in range(1_000):
        trail.note(login(time_us=at), at / 100)
    [first] = trail.take_entries()
    assert (first.count, first.time_us, first.since_us) == (1, 0, 0)
    trail.tick(SUM_S - 0.001)
    assert not trail.entries
    trail.tick(SUM_S)
    [summed] = trail.take_entries()
    assert (summed.count, summed.since_us, summed.time_us) == (999, 1, 999)


def test_what_does_not_happen_again_is_forgotten() -> None:
    trail = AuditTrail(DAY_BYTES)
    trail.note(login(), 0.0)
    trail.take_entries()
    trail.tick(SUM_S)
    assert trail.next_deadline() is None
    trail.note(login(), SUM_S + 1)
    assert [entry.count for entry in trail.take_entries()] == [1]


def test_different_ones_are_told_apart() -> None:
    trail = AuditTrail(DAY_BYTES)
    entries = [login(), login("ann"), login(address="10.0.0.8"), order(), order(pattern="a"), order("resume")]
    for entry in entries:
        trail.note(entry, 0.0)
    assert trail.take_entries() == entries


def test_too_many_different_ones_are_counted_together_and_none_is_left_out() -> None:
    trail = AuditTrail(1 << 40)
    for at in range(KEYS_MAX + 500):
        trail.note(login(address=f"10.0.{at // 256}.{at % 256}"), 0.0)
    trail.tick(SUM_S)
    written = trail.take_entries()
    assert sum(entry.count for entry in written) == KEYS_MAX + 500
    assert [entry.count for entry in written if entry.who == OTHERS] == [1, 499]


def test_an_order_is_written_whatever_others_do() -> None:
    trail = AuditTrail(1)
    for at in range(KEYS_MAX + 500):
        trail.note(login(f"eve{at}"), 0.0)
    trail.take_entries()
    trail.note(order(pattern="plant/**"), 1.0)
    assert trail.take_entries() == [order(pattern="plant/**")]


def test_a_node_that_stops_writes_the_sums_that_are_not_due_yet() -> None:
    trail = AuditTrail(DAY_BYTES)
    for _ in range(3):
        trail.note(login(), 0.0)
    trail.take_entries()
    trail.flush()
    assert [entry.count for entry in trail.take_entries()] == [2]


def test_a_long_text_is_cut() -> None:
    trail = AuditTrail(DAY_BYTES)
    trail.note(AuditEntry(kind="refusal", action="denied", who="eve", text="x" * 10_000), 0.0)
    assert len(trail.take_entries()[0].text) == TEXT_CHARS_MAX + 1


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefghij"), st.floats(0.0, 300.0), st.integers(1, 5)), max_size=300
    ),
    st.integers(1_000, 20_000),
)
def test_no_login_is_left_out_and_a_day_is_bounded(
    said: list[tuple[str, float, int]], bytes_per_day_max: int
) -> None:
    trail, now, size, count, due = AuditTrail(bytes_per_day_max), 0.0, 0, 0, 0
    for who, wait_s, times in said:
        now += wait_s
        trail.tick(now)
        for _ in range(times):
            trail.note(login(who), now)
            due += 1
        for entry in trail.take_entries():
            size += len(write_entry(entry)) + ENTRY_BYTES
            count += entry.count
    assert size <= bytes_per_day_max * (1 + now / DAY_S)
    trail.flush()
    assert count + sum(entry.count for entry in trail.take_entries()) == due
