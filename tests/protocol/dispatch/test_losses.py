"""Events whose bytes in the journal are damaged: lost to everybody who was owed them, once, with the reason."""

from __future__ import annotations

from msgspec.structs import replace

from reknit.entries import Removed
from reknit.fields import SeriesRange
from reknit.outcome import FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.inputs import EventsGone, JournalDamaged, JournalGrown, JournalScanned
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import Scan, Send
from reknit.protocol.machine import JOURNAL, PeerLeft
from reknit.seqset import SeqSet
from reknit.wire.messages import Credit, Lost, Settle
from tests.protocol.dispatch.bench import SOURCE, Bench

DAMAGE = [Removed("plant/a", SOURCE, 2, 4)]
REPORT = Lost(1, "plant/a", SOURCE, 2, 4, "damaged")


def ranges(*bounds: tuple[int, int]) -> SeqSet:
    return SeqSet.from_ranges(bounds)


def losses(effects: list[Effect]) -> list[Lost]:
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, Lost)]


def behind(name: str = "") -> Bench:
    """Five events are in the journal, and a subscriber that has no credit is before them."""
    bench = Bench()
    if name:
        bench.subscribe(name, credit=0)
    for seq in range(1, 6):
        bench.publish(seq)
    return bench


def restarted(name: str = "") -> tuple[Bench, Scan]:
    """A node that has nothing in memory: a subscriber that begins with the first event leads to a scan."""
    bench = behind().restart()
    bench.subscribe(name, position=0, credit=0)
    bench.dispatch.receive(Credit(1, 1 << 20), "p", 0.0)
    [scan] = [one for one in bench.dispatch.take_effects() if isinstance(one, Scan)]
    return bench, scan


def test_durable_subscriber_is_told_of_damage_and_the_ledger_balances() -> None:
    bench = behind("audit")
    assert losses(bench.give(JournalDamaged(DAMAGE), JOURNAL)) == [REPORT]
    assert bench.ends("audit") == {FinalOutcome.LOST: ranges((2, 4))}
    assert losses(bench.give(JournalDamaged(DAMAGE), JOURNAL)) == []
    [row] = bench.journal.ledger.rows(bench.dispatch.in_hand())
    assert (row.balanced, row.lost, row.in_flight) == (True, 2, 3)


def test_damage_is_lost_to_a_durable_subscriber_that_is_away() -> None:
    bench = behind("audit")
    bench.give(PeerLeft())
    assert losses(bench.give(JournalDamaged(DAMAGE), JOURNAL)) == []
    assert bench.ends("audit") == {FinalOutcome.LOST: ranges((2, 4))}


def test_durable_subscriber_that_was_away_is_told_of_its_losses_until_it_confirms() -> None:
    bench = behind("audit")
    bench.give(PeerLeft())
    bench.give(JournalDamaged(DAMAGE), JOURNAL)
    assert losses(bench.subscribe("audit")) == [REPORT]
    bench.give(PeerLeft())
    bench = bench.restart()
    assert losses(bench.subscribe("audit")) == [REPORT]
    bench.give(Settle(1, 1, [], lost=[SeriesRange("plant/a", SOURCE, 1, 9)]))
    bench.give(PeerLeft())
    assert losses(bench.subscribe("audit")) == []
    assert bench.ends("audit")[FinalOutcome.LOST] == ranges((2, 4))


def test_confirming_a_loss_that_is_none_records_nothing() -> None:
    bench = behind("audit")
    end = bench.journal.end
    bench.give(Settle(1, 1, [], lost=[SeriesRange("plant/a", SOURCE, 1, 9), SeriesRange("x", SOURCE, 1, 9)]))
    assert bench.journal.end == end


def test_events_that_a_subscriber_has_are_not_lost_until_they_come_back() -> None:
    bench = Bench()
    bench.subscribe("audit")
    bench.publish(1, 3)
    assert losses(bench.give(JournalDamaged([Removed("plant/a", SOURCE, 1, 4)]), JOURNAL)) == []
    bench.settle(1, 1, 2, Outcome.ACCEPTED)
    bench.settle(2, 2, 4, Outcome.RELEASED)
    gone = EventsGone(("p", 1), "plant/a", SOURCE, 2, 4, Reason.DAMAGED)
    assert losses(bench.give(gone, JOURNAL)) == [REPORT]
    assert bench.ends("audit") == {FinalOutcome.ACCEPTED: ranges((1, 2)), FinalOutcome.LOST: ranges((2, 4))}


def test_subscriber_without_a_name_is_told_when_its_cursor_passes_damage() -> None:
    bench, scan = restarted()
    run = bench.journal.read(scan.position)
    effects = bench.give(JournalScanned(scan.key, replace(run, lost=tuple(DAMAGE))), JOURNAL)
    assert losses(effects) == [REPORT]


def test_new_durable_subscriber_is_told_of_damage_that_was_found_before() -> None:
    bench, scan = restarted("audit")
    run = bench.journal.read(scan.position)
    effects = bench.give(JournalScanned(scan.key, replace(run, lost=tuple(DAMAGE))), JOURNAL)
    assert losses(effects) == [REPORT]
    assert bench.ends("audit")[FinalOutcome.LOST] == ranges((2, 4))


def test_live_subscriber_is_told_of_damage_in_what_was_just_stored() -> None:
    bench = Bench()
    bench.subscribe()
    run = replace(bench.journal.read(0), lost=tuple(DAMAGE))
    assert losses(bench.give(JournalGrown([run], bench.journal.end), JOURNAL)) == [REPORT]


def test_waiting_events_of_a_subscriber_without_a_name_are_lost_before_their_next_attempt() -> None:
    bench = Bench()
    bench.subscribe()
    bench.publish(2, 2)
    bench.settle(1, 2, 4, Outcome.FAILED)
    assert losses(bench.give(JournalDamaged(DAMAGE), JOURNAL)) == [REPORT]
