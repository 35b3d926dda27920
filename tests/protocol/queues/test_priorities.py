"""Priorities: weighted, never strict, and only while several wait."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.protocol.effects import DeliverRuns, Redeliver
from reknit.protocol.queues.priorities import PriorityShares
from reknit.wire.messages import Credit
from tests.protocol.dispatch.bench import Bench, seqs

SOURCES = [bytes([48 + priority]) * 16 for priority in range(7)]


def waiting(priorities: list[int], each: int) -> Bench:
    """A subscriber without credit, and events of these priorities behind a first one of CS1."""
    bench = Bench()
    bench.subscribe("audit", credit=1)
    bench.publish(1, source=b"first" + bytes(11))
    for seq in range(1, each + 1):
        for priority in priorities:
            bench.publish(seq, source=SOURCES[priority], priority=priority)
    return bench


def order(bench: Bench, credit: int) -> list[int]:
    """The priorities in the order of delivery, as credit is granted."""
    found: list[int] = []
    total = 1
    while total < credit:
        total += 200
        for effect in bench.give(Credit(1, total)):
            if isinstance(effect, Redeliver):
                found += [effect.source[0] - 48] * (effect.stop - effect.start)
            elif isinstance(effect, DeliverRuns):
                heads = [
                    entry.head
                    for piece in effect.pieces
                    for entry in piece.run.entries[piece.low : piece.high]
                ]
                found += [head.source[0] - 48 for head in heads]
    return found


def test_what_is_urgent_overtakes_what_waits() -> None:
    found = order(waiting([1, 6], 50), 3_000)
    assert found.count(6) > 2 * found.count(1)


def test_bulk_is_not_starved() -> None:
    found = order(waiting([0, 6], 300), 30_000)
    assert 0 in found[: len(found) // 2]
    assert found.count(6) > found.count(0)


def test_every_event_goes_out_once_and_in_the_order_of_its_source() -> None:
    bench = waiting([0, 1, 3, 6], 40)
    got: dict[bytes, list[int]] = {}
    for effect in bench.give(Credit(1, 1 << 30)):
        if isinstance(effect, Redeliver):
            got.setdefault(effect.source, []).extend(range(effect.start, effect.stop))
        elif isinstance(effect, DeliverRuns):
            for piece in effect.pieces:
                for entry in piece.run.entries[piece.low : piece.high]:
                    got.setdefault(entry.head.source, []).extend(range(entry.head.first, entry.head.stop))
    assert got == {SOURCES[priority]: list(range(1, 41)) for priority in (0, 1, 3, 6)}
    assert bench.dispatch.queues["p", 1].is_live


def test_credit_is_kept_while_several_priorities_wait() -> None:
    bench = waiting([], 0)
    for seq in range(1, 51):  # in one commit, so that the cursor can read all of it in one turn
        batch = Batch.build(SOURCES[1], "plant/a", seq, [b"x"], 0)
        bench.journal.stage(bytes(batch.data), [batch.head])
    bench.keep()
    for seq in range(1, 21):
        bench.publish(seq, source=SOURCES[6], priority=6)
    effects = bench.give(Credit(1, 500))
    sizes = [effect.size for effect in effects if isinstance(effect, DeliverRuns | Redeliver)]
    assert 0 < sum(sizes) < 1_000


def test_floor_stays_before_what_was_overtaken() -> None:
    """Otherwise a restart would forget it."""
    bench = waiting([1, 6], 10)
    order(bench, 600)
    again = bench.restart()
    assert set(seqs(again.subscribe("audit"))) >= set(range(1, 11))


def test_nothing_is_counted_while_one_priority_waits() -> None:
    shares = PriorityShares()
    assert shares.next([3]) == 3
    shares.had(3, 1000)
    assert shares.next([0, 3]) == 3


def test_one_priority_goes_out_as_pieces_of_the_journal() -> None:
    bench = waiting([1], 20)
    assert all(isinstance(effect, DeliverRuns) for effect in bench.give(Credit(1, 1 << 30)))
