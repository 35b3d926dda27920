"""Quotas for publishing: the machine beside the intake, in virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.protocol.effects import Append, Send
from reknit.protocol.machine import MadeDurable, PeerJoined, PeerLeft
from reknit.protocol.publish.intake import Effect, Intake
from reknit.protocol.publish.rate_quotas import DEBT_S, PublishQuotas, RateQuotas, Rates
from reknit.wire.codec import Frames
from reknit.wire.messages import Declare, Go, Hold

RATES = {"ann": Rates(events=10), "bob": Rates(bytes=1_000)}


def who(peer: object) -> str:
    """Peers are named as their identity with a number: `ann1`."""
    return str(peer).rstrip("0123456789")


def machine() -> Intake:
    quotas = RateQuotas(lambda name: RATES.get(name, Rates()))
    return Intake({}, quotas=PublishQuotas(quotas, who))


def frames(first: int, *counts: int, source: bytes = b"s" * 16) -> Frames:
    """Consecutive batches with so many events each."""
    batches = []
    for count in counts:
        batches.append(Batch.build(source, "plant/a", first, [b"x"] * count, time_us=0))
        first += count
    return Frames(b"".join(bytes(batch.data) for batch in batches), [batch.head for batch in batches])


def taken(effects: list[Effect]) -> int:
    """How many events were appended."""
    return sum(head.count for effect in effects if isinstance(effect, Append) for head in effect.heads)


def said(effects: list[Effect]) -> list[tuple[object, type]]:
    return [(one.peer, type(one.message)) for one in effects if isinstance(one, Send)]


def test_a_publisher_within_its_quota_hears_nothing() -> None:
    intake = machine()
    for at in range(10):
        intake.receive(frames(1 + 5 * at, 5), "ann1", float(at))
    effects = intake.take_effects()
    assert (taken(effects), said(effects), intake.next_deadline()) == (50, [], None)


def test_what_was_on_its_way_is_taken_and_paid_by_waiting() -> None:
    intake = machine()
    intake.receive(frames(1, 10, 20), "ann1", 0.0)
    effects = intake.take_effects()
    assert taken(effects) == 30
    assert said(effects) == [("ann1", Hold)]
    assert intake.next_deadline() == 2.0
    intake.tick(1.9)
    assert intake.take_effects() == []
    intake.tick(2.1)
    assert said(intake.take_effects()) == [("ann1", Go)]
    assert intake.next_deadline() is None


def test_beyond_the_debt_nothing_is_taken_until_go_so_that_no_gap_comes() -> None:
    intake = machine()
    limit = int(10 * (1 + DEBT_S))
    intake.receive(frames(1, limit + 1, 5, 5), "ann1", 0.0)
    effects = intake.take_effects()
    assert (taken(effects), said(effects)) == (limit + 1, [("ann1", Hold)])
    intake.receive(frames(limit + 12, 5), "ann1", 9.9)
    effects = intake.take_effects()
    assert (taken(effects), said(effects)) == (0, [("ann1", Hold)])
    intake.tick(DEBT_S + 1)
    assert said(intake.take_effects()) == [("ann1", Go)]
    intake.receive(frames(limit + 2, 5, 5, 5), "ann1", DEBT_S + 1)
    assert taken(intake.take_effects()) == 15


def test_events_of_a_new_source_that_were_not_taken_are_not_skipped_later() -> None:
    """Its first batch waits at the publisher; a later one, which was on its way, must not begin the source."""
    intake = machine()
    intake.receive(frames(1, 200), "ann1", 0.0)
    intake.take_effects()
    new = b"n" * 16
    intake.receive(frames(1, 3, source=new), "ann1", 0.1)
    intake.tick(30.0)
    assert said(intake.take_effects())[-1] == ("ann1", Go)
    intake.receive(frames(4, 3, source=new), "ann1", 30.0)
    assert taken(intake.take_effects()) == 0
    intake.receive(frames(1, 6, source=new), "ann1", 30.1)
    assert taken(intake.take_effects()) == 6


def test_a_new_source_does_not_begin_with_events_of_a_connection_that_was_superseded() -> None:
    """Those before them are refused, and those of the new connection were taken for ones that are here already."""
    intake = machine()
    for peer in ("ann1", "ann2"):
        intake.receive(PeerJoined(), peer, 0.0)
        intake.receive(Declare(b"s" * 16, "plant/a"), peer, 0.0)
    intake.receive(frames(1, 200, source=b"o" * 16), "ann3", 0.0)
    intake.receive(frames(20, 2), "ann1", 0.1)
    intake.tick(30.0)
    intake.take_effects()
    intake.receive(frames(1, 5), "ann2", 30.0)
    assert taken(intake.take_effects()) == 5


def test_the_peers_of_an_identity_share_its_quota_and_others_are_not_touched() -> None:
    intake = machine()
    intake.receive(frames(1, 20), "ann1", 0.0)
    intake.receive(frames(1, 1, source=b"2" * 16), "ann2", 0.0)
    intake.receive(frames(1, 1_000, source=b"3" * 16), "eve1", 0.0)
    effects = intake.take_effects()
    assert taken(effects) == 1_021
    assert said(effects) == [("ann1", Hold), ("ann2", Hold)]
    intake.tick(1.2)
    assert said(intake.take_effects()) == [("ann1", Go), ("ann2", Go)]


def test_bytes_are_a_quota_too() -> None:
    intake = machine()
    intake.receive(frames(1, 2_000), "bob1", 0.0)
    [hold] = [one.message for one in intake.take_effects() if isinstance(one, Send)]
    assert isinstance(hold, Hold)
    assert "bytes_per_s=1000" in hold.text


def test_what_is_here_already_costs_nothing() -> None:
    intake = machine()
    for _ in range(100):
        intake.receive(frames(1, 5), "ann1", 0.0)
    intake.receive(frames(1, 9), "ann1", 0.0)
    assert Hold not in [kind for _, kind in said(intake.take_effects())]
    intake.receive(frames(1, 11), "ann1", 0.0)
    assert Hold in [kind for _, kind in said(intake.take_effects())]


def test_who_has_left_is_told_nothing() -> None:
    intake = machine()
    intake.receive(frames(1, 20), "ann1", 0.0)
    intake.receive(PeerLeft(), "ann1", 0.1)
    intake.take_effects()
    assert intake.next_deadline() is None
    intake.tick(100.0)
    assert intake.take_effects() == []


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 200)), min_size=1, max_size=40))
def test_nothing_is_lost_and_the_rate_holds(steps: list[tuple[float, int]]) -> None:
    """A publisher that sends again at Go, as the protocol says, has all its events taken, and not too fast."""
    intake, now, first, stored = machine(), 0.0, 1, 0
    counts: list[int] = []
    largest = max(count for _, count in steps)

    def settle() -> None:
        nonlocal stored
        effects = intake.take_effects()
        for effect in effects:
            if isinstance(effect, Append):
                stored += taken([effect])
                intake.receive(MadeDurable(effect.number), "journal", now)
        if ("ann1", Go) in said(effects) and stored < first - 1:
            left, start = list(counts), 1
            while start <= stored:
                start += left.pop(0)
            intake.receive(frames(start, *left), "ann1", now)
            settle()
        assert stored <= 10 * (now + 1 + DEBT_S) + largest

    for wait_s, count in steps:
        now += wait_s
        intake.tick(now)
        settle()
        intake.receive(frames(first, count), "ann1", now)
        counts.append(count)
        first += count
        settle()
    while (deadline := intake.next_deadline()) is not None:
        now = max(deadline, now) + 0.001
        intake.tick(now)
        settle()
    assert stored == first - 1, "everything was taken in the end"
