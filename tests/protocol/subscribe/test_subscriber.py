"""The subscriber's side: every event once and in order, its outcome sent until it is stored."""

from reknit.batch import Batch
from reknit.fields import SeriesRange
from reknit.outcome import Outcome
from reknit.protocol.subscribe.subscriber import (
    Connected,
    DeliverBatches,
    Delivered,
    Disconnected,
    Effect,
    Input,
    LossReport,
    OutcomesStored,
    SendToNode,
    Subscriber,
    SubscriberState,
    SubscriptionEnded,
    SubscriptionOpened,
)
from reknit.wire.codec import decode, encode
from reknit.wire.messages import (
    HELD_MAX,
    Credit,
    DispositionRow,
    Held,
    Holding,
    Lost,
    Message,
    Settle,
    Settled,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribed,
)

SOURCE = b"s" * 16
STREAM = ("plant/a", SOURCE)
NODE = "node"


def batch(first: int, count: int = 1) -> Batch:
    return Batch.build(SOURCE, "plant/a", first, [b"x"] * count, 0)


def give(subscriber: Subscriber, message: Input) -> list[Effect]:
    subscriber.receive(message, NODE, 0.0)
    return subscriber.take_effects()


def live(name: str = "", credit_bytes: int = 1 << 20) -> Subscriber:
    subscriber = Subscriber(1, "plant/**", name, credit_bytes=credit_bytes)
    give(subscriber, Connected("epoch"))
    give(subscriber, Subscribed(1, 0, False))
    return subscriber


def reconnect(subscriber: Subscriber, epoch: str = "epoch") -> tuple[Subscribe, list[Effect]]:
    """Lose the connection and get another; returns the request, and the effects of the node's answer."""
    give(subscriber, Disconnected())
    [effect] = give(subscriber, Connected(epoch))
    assert isinstance(effect, SendToNode)
    assert isinstance(effect.message, Subscribe)
    return effect.message, give(subscriber, Subscribed(1, 0, True))


def handed(effects: list[Effect]) -> list[tuple[int, int]]:
    return [
        (one.first, one.stop)
        for effect in effects
        if isinstance(effect, DeliverBatches)
        for one in effect.batches
    ]


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, SendToNode)]


def accepted(start: int, stop: int) -> DispositionRow:
    return DispositionRow("plant/a", SOURCE, start, stop, int(Outcome.ACCEPTED))


# -- events


def test_events_are_delivered_in_order() -> None:
    subscriber = live()
    assert handed(give(subscriber, Delivered([batch(1, 2), batch(3)], 10))) == [(1, 3), (3, 4)]


def test_seen_events_are_dropped_and_the_rest_of_their_batch_is_not() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10))
    assert handed(give(subscriber, Delivered([batch(1, 3)], 10))) == []
    assert handed(give(subscriber, Delivered([batch(2, 5)], 20))) == [(4, 7)]


def test_gap_is_reported_in_its_place() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1)], 10))
    report, hand = give(subscriber, Delivered([batch(5)], 20))
    assert report == LossReport("plant/a", SOURCE, 2, 5, "gone")
    assert handed([hand]) == [(5, 6)]


def test_durable_subscriber_is_told_of_losses_by_its_node_alone() -> None:
    """Seqs that it does not see ended before the program restarted."""
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1)], 10))
    assert handed(give(subscriber, Delivered([batch(5)], 20))) == [(5, 6)]
    assert give(subscriber, Lost(1, "plant/a", SOURCE, 6, 8, "retention")) == [
        LossReport("plant/a", SOURCE, 6, 8, "retention"),
        SendToNode(Settle(1, 1, [], lost=[SeriesRange("plant/a", SOURCE, 6, 8)])),
    ]


def test_loss_is_reported_once_and_confirmed_each_time() -> None:
    subscriber = live("audit")
    lost = Lost(1, "plant/a", SOURCE, 1, 3, "retention")
    assert [type(one) for one in give(subscriber, lost)] == [LossReport, SendToNode]
    assert [type(one) for one in give(subscriber, lost)] == [SendToNode]


def test_loss_may_be_told_ahead_of_the_events_before_it() -> None:
    """Somebody else read the damaged place first. The subscriber took the report for progress and dropped them."""
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1)], 10))
    give(subscriber, Lost(1, "plant/a", SOURCE, 4, 6, "damaged"))
    assert subscriber.checkpoint() == {SOURCE.hex(): 1}
    assert handed(give(subscriber, Delivered([batch(2, 2)], 20))) == [(2, 4)]
    assert subscriber.checkpoint() == {SOURCE.hex(): 5}
    assert handed(give(subscriber, Delivered([batch(2, 2), batch(6)], 30))) == [(6, 7)]


def test_gap_before_a_loss_is_lost_too() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1)], 10))
    assert give(subscriber, Lost(1, "plant/a", SOURCE, 4, 6, "retention")) == [
        LossReport("plant/a", SOURCE, 2, 6, "retention")
    ]


def test_events_that_arrived_are_not_lost_when_they_are_removed() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1, 5)], 10))
    assert give(subscriber, Lost(1, "plant/a", SOURCE, 1, 6, "retention")) == []


def test_events_given_back_and_removed_are_lost() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1, 5)], 10))
    subscriber.settle(STREAM, 2, 3, Outcome.RELEASED)
    assert give(subscriber, Lost(1, "plant/a", SOURCE, 1, 6, "retention")) == [
        LossReport("plant/a", SOURCE, 2, 3, "retention")
    ]


# -- credit


def test_credit_is_granted_again_as_the_application_takes() -> None:
    size = batch(1).head.length
    subscriber = live(credit_bytes=4 * size)
    give(subscriber, Delivered([batch(1)], 10))
    subscriber.taken(size)
    assert sent(subscriber.take_effects()) == [Credit(1, 5 * size)]


def test_dropped_events_cost_no_credit() -> None:
    size = batch(1).head.length
    subscriber = live(credit_bytes=size)
    give(subscriber, Delivered([batch(1)], 10))
    assert sent(give(subscriber, Delivered([batch(1)], 10))) == [Credit(1, 2 * size)]


def test_credit_on_a_new_connection_is_what_is_not_buffered() -> None:
    size = batch(1).head.length
    subscriber = live("audit", credit_bytes=4 * size)
    give(subscriber, Delivered([batch(1)], 10))
    request, _ = reconnect(subscriber)
    assert request.credit == 3 * size


def test_credit_freed_while_asking_is_granted_when_the_subscription_is_confirmed() -> None:
    """There may be no later moment: everything is taken, and without credit nothing more arrives."""
    size = batch(1).head.length
    subscriber = live("audit", credit_bytes=size)
    give(subscriber, Delivered([batch(1)], 10))
    give(subscriber, Disconnected())
    [effect] = give(subscriber, Connected("epoch"))
    assert isinstance(effect, SendToNode)
    assert isinstance(effect.message, Subscribe)
    assert effect.message.credit == 0
    subscriber.taken(size)
    assert subscriber.take_effects() == []
    assert Credit(1, size) in sent(give(subscriber, Subscribed(1, 0, True)))


def test_more_than_the_window_is_never_granted() -> None:
    size = batch(1).head.length
    subscriber = live("audit", credit_bytes=size)
    give(subscriber, Delivered([batch(1), batch(2), batch(3)], 10))
    _, effects = reconnect(subscriber)
    for _ in range(3):
        subscriber.taken(size)
    effects += subscriber.take_effects()
    assert [message.total for message in sent(effects) if isinstance(message, Credit)][-1] == size


# -- outcomes


def test_outcomes_are_gathered_and_sent_as_one_message() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1, 5)], 10))
    subscriber.settle(STREAM, 1, 2, Outcome.ACCEPTED)
    subscriber.settle(STREAM, 2, 4, Outcome.ACCEPTED)
    subscriber.settle(STREAM, 4, 5, Outcome.REJECTED, 3, "bad")
    assert subscriber.take_effects() == []
    assert subscriber.flush() == 1
    rejected = DispositionRow("plant/a", SOURCE, 4, 5, int(Outcome.REJECTED), 3, "bad")
    assert sent(subscriber.take_effects()) == [Settle(1, 1, [accepted(1, 4), rejected])]


def test_only_held_events_can_be_settled_and_only_once() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1, 2)], 10))
    subscriber.settle(STREAM, 1, 9, Outcome.ACCEPTED)
    subscriber.settle(STREAM, 1, 9, Outcome.REJECTED)
    subscriber.flush()
    assert sent(subscriber.take_effects()) == [Settle(1, 1, [accepted(1, 3)])]


def test_outcomes_are_resent_until_they_are_stored() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 2)], 10))
    for seq in (1, 2):
        subscriber.settle(STREAM, seq, seq + 1, Outcome.ACCEPTED)
        subscriber.flush()
    assert give(subscriber, Settled(1, 1))[-1] == OutcomesStored(1)
    _, effects = reconnect(subscriber)
    assert sent(effects) == [Settle(1, 2, [accepted(2, 3)])]
    assert not subscriber.is_settled
    give(subscriber, Settled(1, 2))
    assert subscriber.is_settled


def test_event_with_an_unsent_outcome_is_reported_as_held() -> None:
    """The node would deliver the event again, and this side would drop it: it could never end."""
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1)], 10))
    subscriber.settle(STREAM, 1, 2, Outcome.ACCEPTED)
    request, effects = reconnect(subscriber)
    assert request.held == [Held("plant/a", SOURCE, 1, 2)]
    assert sent(effects) == [Settle(1, 1, [accepted(1, 2)])]


# -- giving back


def test_event_given_back_is_delivered_again() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10))
    subscriber.settle(STREAM, 2, 3, Outcome.FAILED)
    [hand] = give(subscriber, Delivered([batch(2)], -1, attempt=2, counted=False))
    assert isinstance(hand, DeliverBatches)
    assert [(one.first, one.attempt) for one in hand.batches] == [(2, 2)]


def test_repeated_delivery_of_an_event_that_was_not_given_back_is_dropped() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10))
    subscriber.settle(STREAM, 2, 3, Outcome.FAILED)
    give(subscriber, Delivered([batch(2)], -1, attempt=2, counted=False))
    assert handed(give(subscriber, Delivered([batch(2)], -1, attempt=2, counted=False))) == []


def test_events_given_back_and_stored_are_given_back_again_on_the_next_connection() -> None:
    """The node forgets which events are to be redelivered when a connection breaks."""
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10))
    subscriber.settle(STREAM, 1, 3, Outcome.RELEASED)
    subscriber.flush()
    give(subscriber, Settled(1, 1))
    request, effects = reconnect(subscriber)
    assert Held("plant/a", SOURCE, 1, 3) in request.held
    released = DispositionRow("plant/a", SOURCE, 1, 3, int(Outcome.RELEASED))
    assert sent(effects) == [Settle(1, 2, [released])]


def test_events_given_back_and_not_stored_are_given_back_once() -> None:
    """Otherwise it would be delivered twice; adjacent events may have been given back separately."""
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10))
    subscriber.settle(STREAM, 1, 2, Outcome.RELEASED)
    subscriber.flush()
    give(subscriber, Settled(1, 1))
    subscriber.settle(STREAM, 2, 3, Outcome.FAILED)
    subscriber.flush()
    _, effects = reconnect(subscriber)
    rows = [row for message in sent(effects) if isinstance(message, Settle) for row in message.rows]
    assert sorted((row.start, row.stop) for row in rows) == [(1, 2), (2, 3)]


# -- connecting


def test_subscription_begins_at_its_start() -> None:
    subscriber = Subscriber(1, "plant/**", start=Start(history=True))
    [request] = sent(give(subscriber, Connected("epoch")))
    assert isinstance(request, Subscribe)
    assert request.start == Start(history=True)
    assert give(subscriber, Subscribed(1, 0, False))[-1] == SubscriptionOpened(False)


def test_subscription_resumes_from_its_position_in_the_same_journal() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1)], 77))
    request, _ = reconnect(subscriber)
    assert request.start == Start(position=77, epoch="epoch")


def test_subscription_resumes_after_its_checkpoint_in_another_journal() -> None:
    subscriber = live()
    give(subscriber, Delivered([batch(1, 4)], 77))
    request, _ = reconnect(subscriber, epoch="another")
    assert request.start == Start(checkpoint={SOURCE.hex(): 4})


def test_more_held_events_than_one_message_can_name_are_reported_before() -> None:
    subscriber, sources = live("audit"), [number.to_bytes(16, "big") for number in range(2 * HELD_MAX + 3)]
    batches = [Batch.build(source, "plant/a", 1, [b"x"], 0) for source in sources]
    give(subscriber, Delivered(batches, 10))
    give(subscriber, Disconnected())
    *before, request = sent(give(subscriber, Connected("epoch")))
    assert isinstance(request, Subscribe)
    assert len(request.held) == 3
    named = [one.source for message in before if isinstance(message, Holding) for one in message.held]
    assert named + [one.source for one in request.held] == sources
    for message in (*before, request):
        assert isinstance(message, Message)
        assert decode(encode(message)) == message, "no node refuses it"


def test_held_events_are_reported_on_reconnection() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 4)], 77))
    request, _ = reconnect(subscriber)
    assert request.held == [Held("plant/a", SOURCE, 1, 5)]


def test_ended_subscription_stays_ended() -> None:
    subscriber = live("audit")
    assert give(subscriber, Unsubscribed(1, 10, "taken over")) == [SubscriptionEnded(10, "taken over")]
    give(subscriber, Disconnected())
    assert give(subscriber, Connected("epoch")) == []
    assert subscriber.state is SubscriberState.ENDED


# -- ordered deliveries


def released(start: int, stop: int, attempt: int) -> DispositionRow:
    return DispositionRow("plant/a", SOURCE, start, stop, int(Outcome.RELEASED), attempt=attempt)


def test_rest_of_an_ordered_delivery_on_its_way_is_given_back_when_it_comes() -> None:
    subscriber = live("audit")
    assert handed(give(subscriber, Delivered([batch(1, 3)], 10, ordered_to=9))) == [(1, 4)]
    subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=1)
    subscriber.give_back_rest(STREAM, 2, 9, attempt=1)
    subscriber.flush()
    subscriber.take_effects()
    effects = give(subscriber, Delivered([batch(4, 5)], 20, ordered_to=9))
    assert handed(effects) == []
    assert sent(effects) == [Settle(1, 2, [released(4, 9, attempt=1)], [])]
    again = give(subscriber, Delivered([batch(1, 8)], -1, attempt=2, ordered_to=9))
    assert handed(again) == [(1, 9)]


def test_rest_of_an_ordered_redelivery_is_given_back_when_it_comes() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 8)], 10, ordered_to=9))
    subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=1)
    subscriber.give_back_rest(STREAM, 2, 9, attempt=1)
    assert handed(give(subscriber, Delivered([batch(1, 3)], -1, attempt=2, ordered_to=9))) == [(1, 4)]
    subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=2)
    subscriber.give_back_rest(STREAM, 2, 9, attempt=2)
    assert handed(give(subscriber, Delivered([batch(4, 5)], -1, attempt=2, ordered_to=9))) == []
    assert handed(give(subscriber, Delivered([batch(1, 8)], -1, attempt=3, ordered_to=9))) == [(1, 9)]


def test_nothing_is_on_its_way_after_a_reconnection() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10, ordered_to=9))
    subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=1)
    subscriber.give_back_rest(STREAM, 2, 9, attempt=1)
    reconnect(subscriber)
    assert handed(give(subscriber, Delivered([batch(1, 8)], -1, attempt=2, ordered_to=9))) == [(1, 9)]


def test_giving_back_an_old_delivery_of_an_ended_event_gives_back_nothing() -> None:
    subscriber = live("audit")
    give(subscriber, Delivered([batch(1, 3)], 10, ordered_to=4))
    assert subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=1)
    subscriber.give_back_rest(STREAM, 2, 4, attempt=1)
    give(subscriber, Delivered([batch(1, 3)], -1, attempt=2, ordered_to=4))
    assert subscriber.settle(STREAM, 1, 2, Outcome.ACCEPTED)
    assert not subscriber.settle(STREAM, 1, 2, Outcome.RELEASED, attempt=1)
    assert not subscriber.settle(STREAM, 2, 4, Outcome.RELEASED, attempt=1)
    assert subscriber.settle(STREAM, 2, 4, Outcome.ACCEPTED)


def test_subscriber_that_resumes_while_it_is_being_opened_gets_its_credit() -> None:
    """It asked without credit, because it was paused: nothing would ever come."""
    subscriber = Subscriber(1, "plant/**", "audit", credit_bytes=1000)
    subscriber.pause(True)
    subscriber.receive(Connected("epoch"), "node", 0.0)
    [asked] = [effect.message for effect in subscriber.take_effects() if isinstance(effect, SendToNode)]
    assert isinstance(asked, Subscribe)
    assert asked.credit == 0
    subscriber.pause(False)
    subscriber.receive(Subscribed(1, 0, True), "node", 0.0)
    sent = [effect.message for effect in subscriber.take_effects() if isinstance(effect, SendToNode)]
    assert sent == [Credit(1, 1000)]
