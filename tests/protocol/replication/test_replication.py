"""From a source to a target: accepted when durable, recovered when missed, given up when its ttl is over."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.outcome import Code, Reason
from reknit.protocol.recovery.cache_inputs import AskRemote, RemoteAnswered, RemoteFound
from reknit.protocol.replication.batch_expiry import EXPIRED_ON_THE_WAY, BatchExpiry
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.replica_publisher import ReportLost, SendBatches
from reknit.protocol.replication.replication import (
    AcceptAtSource,
    BatchesTaken,
    ConfirmLoss,
    Effect,
    FailAtSource,
    Input,
    LossTold,
    RejectAtSource,
    Replication,
    TargetDown,
    TargetUp,
)
from reknit.protocol.replication.told_losses import Loss
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse
from tests.protocol.replication.batches import ANN, SERIES, bounds, made

URL = "tcp://source:7440"
TTL_MS = 1500


def expiring(first: int, stop: int) -> Batch:
    return made(first, stop, ttl_ms=TTL_MS)


class Copy:
    """The machine, whose target is up unless `is_up` is False."""

    def __init__(self, *taken: Batch, is_up: bool = True, has_ttl: bool = True) -> None:
        self.machine = Replication(
            URL,
            window_bytes=1 << 20,
            timeout_s=1.0,
            ask_bytes_max=1000,
            expiry=BatchExpiry(lambda topic: 0, zero_us=0) if has_ttl else None,
        )
        self.now = 0.0
        if is_up:
            self.give(TargetUp())
        self.sent = self.give(BatchesTaken(list(taken)))

    def give(self, *messages: Input) -> list[Effect]:
        for message in messages:
            self.machine.receive(message, "", self.now)
        return self.machine.take_effects()

    def wait(self) -> list[Effect]:
        due = self.machine.next_deadline()
        assert due is not None
        self.now = due
        self.machine.tick(due)
        return self.machine.take_effects()


def test_what_is_durable_at_the_target_is_accepted_at_the_source_and_nothing_else() -> None:
    copy = Copy(made(1, 3), made(3, 5))
    assert copy.sent == [SendBatches([made(1, 3), made(3, 5)])]
    assert copy.give(Ack(ANN, 2)) == [AcceptAtSource([made(1, 3)])]
    assert copy.give(TargetDown()) == []
    assert copy.give(TargetUp()) == [SendBatches([made(3, 5)])]
    assert copy.give(Ack(ANN, 4)) == [AcceptAtSource([made(3, 5)])]
    assert copy.machine.events == 4


def test_what_the_target_refuses_ends_at_the_source() -> None:
    assert Copy(made(1, 3)).give(Refuse(ANN, 1, 3, 7, "no")) == [RejectAtSource([made(1, 3)], 7, "no")]


def test_what_the_target_misses_is_recovered_and_what_nobody_has_is_reported() -> None:
    copy = Copy(made(9, 10))
    [ask] = copy.give(Expect(ANN, 3))
    assert ask == AskRemote(URL, 1, 1, SERIES, [(3, 9)], 1000)
    effects = copy.give(RemoteFound(1, [made(5, 9)]), RemoteAnswered(1, 1, [(3, 9)], True))
    assert effects == [
        ReportLost(SERIES, 3, 5, f"nobody at {URL} has it any more"),
        SendBatches([made(5, 9), made(9, 10)]),
    ]
    assert copy.give(Ack(ANN, 9)) == [AcceptAtSource([made(5, 9), made(9, 10)])]


def test_nothing_is_sent_before_the_target_is_there() -> None:
    copy = Copy(made(1, 3), is_up=False)
    assert copy.sent == []
    assert copy.give(TargetUp()) == [SendBatches([made(1, 3)])]


def test_what_waits_for_the_target_longer_than_its_ttl_is_given_back() -> None:
    copy = Copy(expiring(1, 3), made(3, 5), is_up=False)
    assert copy.machine.next_deadline() == TTL_MS / 1000
    assert copy.wait() == [FailAtSource([expiring(1, 3)], Code.DEADLINE_EXCEEDED, EXPIRED_ON_THE_WAY)]
    assert copy.machine.next_deadline() is None
    assert copy.give(TargetUp()) == [SendBatches([made(3, 5)])]


def test_what_expired_while_nobody_looked_is_given_back_and_not_sent() -> None:
    for waits, goes_on in ((TargetDown(), TargetUp()), (Hold(8, "full"), Go())):
        copy = Copy()
        copy.give(waits, BatchesTaken([expiring(1, 3)]))
        copy.now = 9.0
        effects = copy.give(goes_on)
        assert effects == [FailAtSource([expiring(1, 3)], Code.DEADLINE_EXCEEDED, EXPIRED_ON_THE_WAY)]


def test_what_was_sent_may_be_durable_and_is_not_given_back() -> None:
    for copy in (Copy(expiring(1, 3)), Copy(expiring(1, 3), is_up=False)):
        copy.give(TargetUp(), TargetDown())
        assert copy.machine.next_deadline() is None
        copy.now = 9.0
        assert copy.give(TargetUp()) == [SendBatches([expiring(1, 3)])]


def test_what_was_recovered_and_is_past_its_ttl_is_not_copied() -> None:
    copy = Copy(made(9, 10))
    copy.now = 9.0
    copy.give(Expect(ANN, 3))
    found = RemoteFound(1, [expiring(3, 5), expiring(5, 6), made(6, 9)])
    assert copy.give(found, RemoteAnswered(1, 1, [(3, 9)], True)) == [
        ReportLost(SERIES, 3, 6, EXPIRED_ON_THE_WAY),
        SendBatches([made(6, 9), made(9, 10)]),
    ]


def test_an_expired_part_behind_a_fresh_one_is_skipped_when_the_target_has_come_to_it() -> None:
    copy = Copy(made(9, 10))
    copy.now = 9.0
    copy.give(Expect(ANN, 3))
    effects = copy.give(RemoteFound(1, [made(3, 5), expiring(5, 9)]), RemoteAnswered(1, 1, [(3, 9)], True))
    assert effects == [SendBatches([made(3, 5), made(9, 10)])]
    [ask] = copy.give(Ack(ANN, 4), Expect(ANN, 5))[1:]
    assert isinstance(ask, AskRemote)
    answer = RemoteAnswered(ask.search, ask.number, [(5, 9)], True)
    assert copy.give(RemoteFound(ask.search, [expiring(5, 9)]), answer) == [
        ReportLost(SERIES, 5, 9, EXPIRED_ON_THE_WAY),
        SendBatches([made(9, 10)]),
    ]


def test_a_relay_copies_events_whatever_their_ttl() -> None:
    copy = Copy(expiring(1, 3), is_up=False, has_ttl=False)
    assert copy.machine.next_deadline() is None
    copy.now = 9.0
    assert copy.give(TargetUp()) == [SendBatches([expiring(1, 3)])]


def test_a_batch_expires_with_its_last_event_and_never_if_one_of_them_does_not() -> None:
    expiry = BatchExpiry(lambda topic: 4000, zero_us=1_000_000)
    own = Batch.build(ANN, "plant/temp", 1, [b"x", b"y"], 1_000_000, columns={"ttl": [1000, 3000]}, flags=1)
    some = Batch.build(ANN, "plant/temp", 1, [b"x", b"y"], 1_000_000, columns={"ttl": [1000, 0]}, flags=1)
    assert expiry.deadline(own, 0.0) == 3.0
    assert expiry.deadline(some, 0.0) is None
    assert not expiry.is_over(some, 99.0)
    topics = made(1, 3, time_us=1_000_000)
    assert expiry.deadline(topics, 0.0) == 4.0
    assert [expiry.is_over(topics, now) for now in (3.9, 4.0)] == [False, True]
    assert bounds([topics]) == [(1, 3)]


GONE = "nobody at tcp://source:7440 has it any more"


def lost(start: int, stop: int) -> LossTold:
    return LossTold(Loss(Gap(SERIES, start, stop)))


def test_a_loss_is_reported_after_what_comes_before_it() -> None:
    copy = Copy(made(1, 3), has_ttl=False)
    assert copy.give(lost(3, 6)) == []
    assert copy.give(Ack(ANN, 2)) == [AcceptAtSource([made(1, 3)]), ReportLost(SERIES, 3, 6, GONE)]
    assert copy.give(Ack(ANN, 2)) == [], "reported once"
    assert copy.give(Ack(ANN, 5)) == [ConfirmLoss(lost(3, 6).loss)]
    assert copy.give(lost(8, 9)) == [ReportLost(SERIES, 8, 9, GONE)]


def test_losses_of_a_source_are_reported_one_by_one_in_order() -> None:
    copy = Copy(has_ttl=False)
    assert copy.give(lost(3, 6), lost(8, 9)) == [ReportLost(SERIES, 3, 6, GONE)]
    assert copy.give(lost(8, 9)) == [], "reported again by the source"
    assert copy.give(Ack(ANN, 5)) == [ConfirmLoss(lost(3, 6).loss), ReportLost(SERIES, 8, 9, GONE)]
    assert copy.give(Ack(ANN, 8), TargetDown(), TargetUp()) == [ConfirmLoss(lost(8, 9).loss)]


def test_a_target_learns_whether_events_before_a_loss_may_still_come() -> None:
    damaged = LossTold(Loss(Gap(SERIES, 5, 9), str(Reason.DAMAGED)))
    assert Copy(has_ttl=False).give(damaged) == [ReportLost(SERIES, 5, 9, GONE, is_ahead=True)]


def test_a_loss_is_reported_again_to_a_target_that_was_away() -> None:
    copy = Copy(is_up=False, has_ttl=False)
    assert copy.give(lost(1, 4)) == []
    assert copy.give(TargetUp()) == [ReportLost(SERIES, 1, 4, GONE)]
    assert copy.give(TargetDown(), TargetUp()) == [ReportLost(SERIES, 1, 4, GONE)]


def test_what_a_target_misses_before_a_loss_is_recovered_first() -> None:
    copy = Copy(has_ttl=False)
    assert copy.give(lost(5, 9)) == [ReportLost(SERIES, 5, 9, GONE)]
    [ask] = copy.give(Expect(ANN, 3))
    assert isinstance(ask, AskRemote)
    assert ask.ranges == [(3, 5)]
    assert copy.give(RemoteFound(ask.search, [made(3, 5)])) == []
    found = copy.give(RemoteAnswered(ask.search, ask.number, [(3, 5)], True))
    assert found == [SendBatches([made(3, 5)])]
    assert copy.give(Ack(ANN, 4)) == [AcceptAtSource([made(3, 5)]), ReportLost(SERIES, 5, 9, GONE)]


def test_batches_behind_a_loss_are_sent_again_with_it() -> None:
    copy = Copy(made(6, 8), has_ttl=False)
    assert copy.give(lost(3, 6)) == [ReportLost(SERIES, 3, 6, GONE), SendBatches([made(6, 8)])]
