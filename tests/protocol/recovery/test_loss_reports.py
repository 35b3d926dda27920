"""Losses on a node: what is recorded, what is skipped, and who is told when."""

from __future__ import annotations

from itertools import count
from typing import Any

from reknit.ledger import Ledger
from reknit.outcome import FinalOutcome
from reknit.protocol.effects import AppendRecord, Send
from reknit.protocol.machine import JOURNAL, PeerLeft
from reknit.protocol.recovery.loss_reports import (
    TEXT,
    AllDispatched,
    Effect,
    LossNoted,
    LossReports,
    NeverArrives,
    Opened,
    SkipSource,
)
from reknit.records import OutcomeRow, Outcomes, Skipped, apply
from reknit.topic import Pattern
from reknit.wire.messages import Lost, Start, Subscribe
from tests.protocol.recovery.subscriptions import Subscription, opened
from tests.protocol.recovery.world import ANN, TOPIC

SERIES = (TOPIC, ANN)
AUDIT = Subscription(3, 1, Pattern("plant/**"), name="audit")


class Node:
    """The machine, with a ledger to which its records are applied."""

    def __init__(self, *subscriptions: Subscription) -> None:
        self.ledger = Ledger()
        self.ledger.open("audit", AUDIT.pattern, {}, 0)
        self.ledger.publish(TOPIC, ANN, 1, 3)
        self.open = opened(*subscriptions)
        numbers = count(1)
        self.end = 0
        self.machine = LossReports(self.ledger, self.open, lambda: next(numbers), 1000, lambda: self.end)

    def receive(self, message: Any, peer: object = JOURNAL) -> list[Effect]:
        self.machine.receive(message, peer, 1.0)
        effects = self.machine.take_effects()
        for effect in effects:
            if isinstance(effect, AppendRecord):
                apply(self.ledger, effect.record)
        return effects


def reported(number: int, start: int, stop: int) -> list[Effect]:
    row = OutcomeRow(*SERIES, start, stop, FinalOutcome.LOST, 15, "gone", TEXT, 0, 1_001_000)
    return [
        Send(3, Lost(1, *SERIES, start, stop, "gone")),
        AppendRecord(number, Outcomes("audit", [row])),
    ]


def test_a_loss_is_recorded_skipped_and_reported_once() -> None:
    node = Node(AUDIT, Subscription(4, 1, Pattern("**")))
    lost = NeverArrives(SERIES, 3, 6, "gone")
    assert node.receive(lost) == [
        LossNoted(SERIES, 3, 6, "gone"),
        AppendRecord(1, Skipped(*SERIES, 3, 6, "gone", 1_001_000)),
        SkipSource(ANN, 6),
        *reported(2, 3, 6),
    ]
    assert node.receive(lost) == [SkipSource(ANN, 6)]
    assert node.ledger.untold("audit") == []


def test_a_loss_on_a_shared_topic_ends_at_once() -> None:
    """Seed 10325: nobody connects under the name of its account, and the events were in flight for ever."""
    node = Node()
    node.ledger.open("anycast/plant/**", AUDIT.pattern, {}, 0)
    node.receive(NeverArrives(SERIES, 3, 6))
    ends = {name: account.ends for name, account in node.ledger.accounts.items()}
    assert ends["anycast/plant/**"][SERIES][FinalOutcome.LOST].ranges() == [(3, 6)]
    assert SERIES not in ends["audit"], "it is told when it is connected"


def test_only_what_is_new_is_recorded_and_what_is_stored_is_not_lost() -> None:
    node = Node()
    node.receive(NeverArrives(SERIES, 4, 5))
    records = [
        one.record for one in node.receive(NeverArrives(SERIES, 1, 7)) if isinstance(one, AppendRecord)
    ]
    assert [(one.start, one.stop) for one in records if isinstance(one, Skipped)] == [(3, 4), (5, 7)]


def test_a_subscriber_that_was_away_is_told_when_its_subscription_is_open() -> None:
    node = Node()
    node.receive(NeverArrives(SERIES, 3, 6))
    assert node.receive(Subscribe(1, "plant/**", "audit", Start(), 0), 3) == []
    assert not node.machine.is_waiting, "its account is not durable yet"
    assert node.receive(Opened()) == []
    node.open[3, 1] = AUDIT
    assert node.machine.is_waiting
    assert node.receive(Opened()) == reported(2, 3, 6)
    assert not node.machine.is_waiting
    assert node.receive(Opened()) == []


def test_a_subscription_of_a_peer_that_left_is_not_waited_for() -> None:
    node = Node()
    node.receive(NeverArrives(SERIES, 3, 6))
    node.receive(Subscribe(1, "plant/**", "audit", Start(), 0), 3)
    node.receive(PeerLeft(), 3)
    node.open[3, 1] = AUDIT
    assert not node.machine.is_waiting


def test_a_subscriber_without_a_name_is_told_when_it_has_got_everything_before() -> None:
    other = Subscription(5, 1, Pattern("car/*"))
    node = Node(Subscription(4, 1, Pattern("**")), other)
    node.receive(NeverArrives(SERIES, 3, 6))
    assert node.machine.has_untold
    assert node.receive(AllDispatched()) == [Send(4, Lost(1, *SERIES, 3, 6, "gone"))]
    assert node.receive(AllDispatched()) == []


def test_a_subscriber_without_a_name_that_comes_back_is_told_of_losses_since_its_position() -> None:
    node = Node()
    node.receive(NeverArrives(SERIES, 3, 6))
    node.end = 50
    node.receive(NeverArrives(SERIES, 6, 7))
    node.receive(Subscribe(1, "**", "", Start(position=20), 1 << 20), peer=4)
    node.open[4, 1] = Subscription(4, 1, Pattern("**"))
    assert node.receive(AllDispatched()) == [Send(4, Lost(1, *SERIES, 6, 7, "gone"))]
