"""Batches with seqs of their own, published until they are durable."""

from __future__ import annotations

from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.replica_publisher import (
    BatchesRefused,
    BatchesStored,
    GapFound,
    Input,
    ReplicaPublisher,
    ReportLost,
    SendBatches,
)
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse
from tests.protocol.replication.batches import ANN, BOB, SERIES, made


def publisher(*batches: tuple[int, int], bytes_max: int = 1 << 20) -> ReplicaPublisher:
    machine = ReplicaPublisher(bytes_max)
    machine.put([made(*bounds) for bounds in batches])
    machine.take_effects()
    return machine


def effects_of(machine: ReplicaPublisher, *messages: Input) -> list[object]:
    for message in messages:
        machine.receive(message, "node", 0.0)
    return list(machine.take_effects())


def test_batches_are_sent_once_and_reported_when_they_are_durable() -> None:
    machine = ReplicaPublisher(1 << 20)
    machine.put([made(1, 3), made(3, 6), made(1, 2, BOB)])
    assert machine.take_effects() == [SendBatches([made(1, 3), made(3, 6), made(1, 2, BOB)])]
    assert effects_of(machine, Ack(ANN, 4)) == [BatchesStored([made(1, 3)])], (
        "a part of a batch is not enough"
    )
    assert effects_of(machine, Ack(ANN, 5), Ack(BOB, 1)) == [
        BatchesStored([made(3, 6)]),
        BatchesStored([made(1, 2, BOB)]),
    ]
    assert effects_of(machine, Ack(ANN, 5)) == []
    assert machine.unacked_bytes == 0


def test_there_is_no_room_while_too_much_is_not_durable() -> None:
    machine = publisher((1, 3), bytes_max=made(1, 3).head.length)
    assert not machine.has_room
    machine.receive(Ack(ANN, 2), "node", 0.0)
    assert machine.has_room


def test_what_the_node_expects_is_sent_again_if_it_is_here() -> None:
    machine = publisher((1, 3), (3, 6), (6, 7))
    assert effects_of(machine, Expect(ANN, 4)) == [SendBatches([made(3, 6), made(6, 7)])]


def test_what_is_not_here_is_a_gap_before_the_first_batch_behind_it() -> None:
    machine = publisher((1, 3), (6, 7), (7, 9))
    assert effects_of(machine, Ack(ANN, 2), Expect(ANN, 3)) == [
        BatchesStored([made(1, 3)]),
        GapFound(Gap(SERIES, 3, 6)),
    ]
    assert effects_of(machine, Expect(BOB, 3)) == [], "nobody waits for it"


def test_what_was_found_comes_before_what_waits_and_what_was_not_is_lost() -> None:
    machine = publisher((6, 7))
    assert machine.fill(Gap(SERIES, 3, 6), [made(5, 6)], "gone") == 2
    assert machine.take_effects() == [
        ReportLost(SERIES, 3, 5, "gone"),
        SendBatches([made(5, 6), made(6, 7)]),
    ]
    assert machine.fill(Gap(SERIES, 3, 6), [], "gone") == 3
    assert machine.take_effects() == [
        ReportLost(SERIES, 3, 6, "gone"),
        SendBatches([made(5, 6), made(6, 7)]),
    ]


def test_batches_that_were_put_in_before_are_acknowledged_in_seq_order() -> None:
    machine = publisher((6, 7))
    machine.put_before([made(3, 6)])
    machine.take_effects()
    assert effects_of(machine, Ack(ANN, 5)) == [BatchesStored([made(3, 6)])]


def test_nothing_is_sent_while_the_node_asks_to_wait_and_everything_afterwards() -> None:
    machine = publisher((1, 3))
    machine.receive(Hold(8, "full"), "node", 0.0)
    machine.put([made(3, 6)])
    assert machine.take_effects() == []
    assert effects_of(machine, Go()) == [SendBatches([made(1, 3), made(3, 6)])]
    machine.put([made(6, 7)])
    assert machine.take_effects() == [SendBatches([made(6, 7)])]


def test_refused_batches_are_reported_and_forgotten() -> None:
    machine = publisher((1, 3), (3, 6))
    assert effects_of(machine, Refuse(ANN, 1, 3, 7, "no")) == [BatchesRefused(ANN, [made(1, 3)], 7, "no")]
    assert machine.unacked() == [made(3, 6)]


def test_what_follows_an_event_that_is_not_valid_does_not_wait_for_it() -> None:
    machine = publisher((1, 3), (3, 6))
    assert effects_of(machine, Refuse(ANN, 1, 3, 3, "from the future")) == [
        BatchesRefused(ANN, [made(1, 3)], 3, "from the future"),
        ReportLost(SERIES, 1, 3, "from the future"),
        SendBatches([made(3, 6)]),
    ]


def test_batches_that_are_withdrawn_are_not_sent_again() -> None:
    machine = publisher((1, 3))
    machine.put([made(1, 2, BOB)])
    machine.take_effects()
    assert machine.withdraw(ANN) == [made(1, 3)]
    assert machine.unacked_sources() == [BOB]
    machine.resend()
    assert machine.take_effects() == [SendBatches([made(1, 2, BOB)])]
    machine.withdraw(BOB)
    machine.resend()
    assert machine.take_effects() == []


def test_a_source_that_has_to_wait_does_not_hold_up_others() -> None:
    machine = publisher((1, 3))
    assert effects_of(machine, Hold(8, "its dead letters are full", [ANN])) == []
    machine.put([made(3, 6), made(1, 2, BOB)])
    assert machine.take_effects() == [SendBatches([made(1, 2, BOB)])]
    assert not machine.is_held
    assert effects_of(machine, Go()) == [SendBatches([made(1, 3), made(3, 6), made(1, 2, BOB)])]
