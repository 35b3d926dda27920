"""Bridges: sources are followed by the nodes that they passed, so that events go nowhere twice."""

from __future__ import annotations

from reknit.outcome import Code
from reknit.protocol.replication.bridge_replication import (
    AskVisited,
    BridgeReplication,
    Effect,
    Input,
    SendToTarget,
    SourceDown,
    SourceUp,
    VisitedKnown,
)
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.replica_publisher import ReportLost, SendBatches
from reknit.protocol.replication.replication import (
    AcceptAtSource,
    BatchesTaken,
    ConfirmLoss,
    LossTold,
    RejectAtSource,
    Replication,
    TargetDown,
    TargetUp,
)
from reknit.protocol.replication.told_losses import Loss
from reknit.wire.links import Via
from reknit.wire.messages import Ack
from tests.protocol.replication.batches import ANN, BOB, made


class Route:
    """A bridge from node `a` to node `b`, which is up unless `is_up` is False."""

    def __init__(self, is_up: bool = True, hops_max: int = 3) -> None:
        copy = Replication("tcp://a:7440", window_bytes=1 << 20, timeout_s=1.0, ask_bytes_max=1000)
        self.machine = BridgeReplication(copy, hops_max)
        self.give(SourceUp("a"))
        if is_up:
            self.give(TargetUp("b"))

    def give(self, *messages: Input) -> list[Effect]:
        for message in messages:
            self.machine.receive(message, "", 0.0)
        return self.machine.take_effects()


def test_the_target_hears_which_nodes_a_source_passed_before_its_events() -> None:
    route = Route()
    assert route.give(BatchesTaken([made(1, 3)])) == [AskVisited([ANN])]
    assert route.give(VisitedKnown({ANN: ["c"]})) == [
        SendToTarget(Via(ANN, ["c", "a"])),
        SendBatches([made(1, 3)]),
    ]
    assert route.give(BatchesTaken([made(3, 5)])) == [SendBatches([made(3, 5)])], "asked once"
    assert route.give(Ack(ANN, 4)) == [AcceptAtSource([made(1, 3), made(3, 5)])]


def test_batches_behind_an_unknown_source_wait_in_order() -> None:
    route = Route()
    route.give(BatchesTaken([made(1, 3)]), VisitedKnown({ANN: []}))
    assert route.give(BatchesTaken([made(1, 2, BOB), made(3, 5)])) == [AskVisited([BOB])]
    assert route.give(BatchesTaken([made(5, 7)])) == [], "behind what waits"
    assert route.give(VisitedKnown({BOB: []})) == [
        SendToTarget(Via(BOB, ["a"])),
        SendBatches([made(1, 2, BOB), made(3, 5), made(5, 7)]),
    ]


def test_a_further_unknown_source_that_came_meanwhile_is_asked_for_next() -> None:
    route = Route()
    route.give(BatchesTaken([made(1, 3)]), BatchesTaken([made(1, 2, BOB)]))
    assert route.give(VisitedKnown({ANN: []})) == [SendToTarget(Via(ANN, ["a"])), AskVisited([BOB])]
    assert route.give(VisitedKnown({BOB: []}))[1:] == [SendBatches([made(1, 3), made(1, 2, BOB)])]


def test_what_waits_when_the_source_is_gone_is_delivered_again() -> None:
    route = Route()
    route.give(BatchesTaken([made(1, 3)]), SourceDown(), SourceUp("a"))
    assert route.give(BatchesTaken([made(1, 3)])) == [AskVisited([ANN])]
    assert route.give(VisitedKnown({ANN: []}))[1:] == [SendBatches([made(1, 3)])], "once"


def test_events_of_the_target_do_not_go_back_to_it() -> None:
    route = Route()
    route.give(BatchesTaken([made(1, 3)]))
    accepted = [AcceptAtSource([made(1, 3)])]
    assert route.give(VisitedKnown({ANN: ["b"]})) == accepted, "and it is not told that they passed others"


def test_events_of_a_target_that_was_away_do_not_go_back_to_it_either() -> None:
    route = Route(is_up=False)
    route.give(BatchesTaken([made(1, 3), made(1, 2, BOB)]), VisitedKnown({ANN: ["b"], BOB: []}))
    assert route.give(TargetUp("b")) == [
        SendToTarget(Via(BOB, ["a"])),
        AcceptAtSource([made(1, 3)]),
        SendBatches([made(1, 2, BOB)]),
    ]
    route.give(TargetDown())
    assert route.machine.target == ""


def test_what_came_over_too_many_bridges_is_rejected() -> None:
    route = Route(hops_max=2)
    route.give(BatchesTaken([made(1, 3)]))
    assert route.give(VisitedKnown({ANN: ["c", "d"]}))[1:] == [
        RejectAtSource([made(1, 3)], Code.ABORTED, "it came over 2 bridges (links.hops_max)")
    ]


def lost(start: int, stop: int, source: bytes = ANN, topic: str = "plant/a") -> LossTold:
    return LossTold(Loss(Gap((topic, source), start, stop)))


def reported(effects: list[Effect]) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for one in effects if isinstance(one, ReportLost)]


def test_a_loss_waits_until_it_is_known_where_its_source_has_been() -> None:
    route = Route()
    assert route.give(lost(1, 4)) == [AskVisited([ANN])]
    assert route.give(BatchesTaken([made(4, 6)])) == [], "behind the loss, in order"
    assert reported(route.give(VisitedKnown({ANN: []}))) == [(1, 4)]


def test_a_loss_waits_for_batches_that_wait() -> None:
    route = Route()
    assert route.give(BatchesTaken([made(1, 3)]), lost(3, 6)) == [AskVisited([ANN])]
    assert reported(route.give(VisitedKnown({ANN: []}))) == []
    assert reported(route.give(Ack(ANN, 2))) == [(3, 6)]


def test_a_loss_that_waits_is_reported_again_by_a_source_that_was_away() -> None:
    route = Route()
    route.give(lost(1, 4), SourceDown(), SourceUp("a"))
    assert route.give(lost(1, 4)) == [AskVisited([ANN])]
    assert reported(route.give(VisitedKnown({ANN: []}))) == [(1, 4)]


def test_a_target_is_not_told_of_losses_of_what_it_does_not_get() -> None:
    route = Route(hops_max=1)
    route.give(VisitedKnown({ANN: ["b"], BOB: ["c"], b"eve!" * 4: []}))
    losses = [lost(1, 4), lost(1, 4, BOB), lost(1, 4, b"eve!" * 4, "reknit/dead-letters")]
    assert route.give(*losses) == [ConfirmLoss(one.loss) for one in losses]
