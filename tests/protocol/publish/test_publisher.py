"""The publisher's side of one source: numbers, holds, resends."""

import pytest

from reknit.batch import Batch
from reknit.lineage import FORGOTTEN, lasting_source
from reknit.outcome import Code
from reknit.protocol.publish.publisher import (
    Confirm,
    Connected,
    Disconnected,
    Numbered,
    PublisherState,
    PublishRefused,
    SendBytes,
    SendToNode,
    SourcePublisher,
)
from reknit.wire.links import Skip
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

SOURCE = b"s" * 16
NODE = "node"


def connected(lasting: bool = False) -> SourcePublisher:
    publisher = SourcePublisher(SOURCE, "plant/temp", lasting)
    publisher.receive(Connected(), NODE, 0.0)
    return publisher


def sent(publisher: SourcePublisher) -> list[bytes]:
    return [bytes(effect.data) for effect in publisher.take_effects() if isinstance(effect, SendBytes)]


def test_seqs_start_at_one_and_follow_on() -> None:
    publisher = connected()
    batches = [publisher.put([b"a", b"b"], 0), publisher.put([b"c"], 0)]
    assert [(batch.first, batch.stop) for batch in batches] == [(1, 3), (3, 4)]


def test_events_are_sent_while_connected_and_held_until_durable() -> None:
    publisher = connected()
    batch = publisher.put([b"a"], 0)
    assert sent(publisher) == [bytes(batch.data)]
    assert list(publisher.unacked) == [batch]
    publisher.receive(Ack(SOURCE, 1), NODE, 0.1)
    assert publisher.take_effects() == [Confirm(2)]
    assert not publisher.unacked
    assert publisher.unacked_bytes == 0


def test_events_wait_while_disconnected_and_are_sent_in_order_on_connection() -> None:
    publisher = SourcePublisher(SOURCE, "plant/temp")
    batches = [publisher.put([b"a"], 0), publisher.put([b"b"], 0)]
    assert publisher.take_effects() == []
    publisher.receive(Connected(), NODE, 0.0)
    assert sent(publisher) == [bytes(batch.data) for batch in batches]


def test_unacknowledged_events_are_resent_as_the_same_bytes() -> None:
    publisher = connected()
    first, second = publisher.put([b"a"], 0), publisher.put([b"b"], 0)
    publisher.receive(Ack(SOURCE, first.stop - 1), NODE, 0.1)
    publisher.take_effects()
    publisher.receive(Disconnected(), NODE, 0.2)
    publisher.receive(Connected(), NODE, 0.3)
    assert sent(publisher) == [bytes(second.data)]


def test_ack_inside_a_batch_confirms_only_the_batches_before() -> None:
    publisher = connected()
    publisher.put([b"a"], 0)
    publisher.put([b"b", b"c"], 0)
    publisher.take_effects()
    publisher.receive(Ack(SOURCE, 2), NODE, 0.1)
    assert publisher.take_effects() == [Confirm(2)]


def test_repeated_ack_confirms_nothing() -> None:
    publisher = connected()
    publisher.put([b"a"], 0)
    publisher.receive(Ack(SOURCE, 1), NODE, 0.1)
    publisher.take_effects()
    publisher.receive(Ack(SOURCE, 1), NODE, 0.2)
    assert publisher.take_effects() == []


def test_gap_is_filled_from_the_seq_that_the_node_expects() -> None:
    publisher = connected()
    batches = [publisher.put([b"a"], 0), publisher.put([b"b"], 0), publisher.put([b"c"], 0)]
    publisher.take_effects()
    publisher.receive(Expect(SOURCE, 2), NODE, 0.1)
    assert sent(publisher) == [bytes(batch.data) for batch in batches[1:]]


def test_nothing_is_sent_while_the_node_asks_to_wait() -> None:
    publisher = connected()
    publisher.receive(Hold(8, "full"), NODE, 0.1)
    batch = publisher.put([b"a"], 0)
    publisher.receive(Expect(SOURCE, 1), NODE, 0.2)
    assert publisher.take_effects() == []
    publisher.receive(Go(), NODE, 0.3)
    assert sent(publisher) == [bytes(batch.data)]


def test_lasting_source_continues_where_the_node_says() -> None:
    publisher = connected(lasting=True)
    assert publisher.take_effects() == [SendToNode(Declare(SOURCE, "plant/temp"))]
    publisher.receive(Ack(SOURCE, 41), NODE, 0.1)
    assert publisher.take_effects() == [Numbered(42)]
    assert publisher.put([b"a"], 0).first == 42


def test_a_lineage_has_another_source_in_every_journal() -> None:
    sources = set()
    for epoch in ("e1", "e2"):
        publisher = SourcePublisher(SOURCE, "plant/temp", lasting=True, lineage="boiler")
        publisher.receive(Connected(epoch), NODE, 0.0)
        assert publisher.source == lasting_source("boiler", epoch)
        assert publisher.take_effects() == [SendToNode(Declare(publisher.source, "plant/temp"))]
        sources.add(publisher.source)
    assert len(sources) == 2


def test_a_source_that_has_seqs_stays_when_the_journal_changes() -> None:
    publisher = SourcePublisher(SOURCE, "plant/temp", lasting=True, lineage="boiler")
    publisher.receive(Connected("e1"), NODE, 0.0)
    publisher.receive(Disconnected(), NODE, 0.0)
    publisher.receive(Connected("e2"), NODE, 0.0)
    assert publisher.source == lasting_source("boiler", "e2")  # nothing was numbered before
    publisher.receive(Ack(publisher.source, 4), NODE, 0.0)
    assert publisher.put([b"a"], 0).source == publisher.source
    publisher.receive(Disconnected(), NODE, 0.0)
    publisher.receive(Connected("e3"), NODE, 0.0)
    assert publisher.source == lasting_source("boiler", "e2")
    assert publisher.put([b"b"], 0).first == 6


def test_events_that_the_node_acknowledged_and_forgot_are_reported_as_lost_there() -> None:
    publisher = connected()
    for _ in range(3):
        publisher.put([b"a"], 0)
    publisher.receive(Ack(SOURCE, 2), NODE, 0.0)
    publisher.take_effects()
    publisher.receive(Expect(SOURCE, 2), NODE, 0.0)
    skip, resent = publisher.take_effects()
    assert skip == SendToNode(Skip("plant/temp", SOURCE, 2, 3, FORGOTTEN))
    assert resent == SendBytes(publisher.unacked[0].data)


def test_who_only_forwards_events_reports_none_as_lost() -> None:
    publisher = connected()
    publisher.forward(Batch.build(SOURCE, "plant/temp", 7, [b"a"], 0))
    publisher.take_effects()
    publisher.receive(Expect(SOURCE, 2), NODE, 0.0)
    assert [type(effect) for effect in publisher.take_effects()] == [SendBytes]


def test_lasting_source_is_declared_on_every_connection() -> None:
    publisher = connected(lasting=True)
    publisher.receive(Ack(SOURCE, 0), NODE, 0.1)
    batch = publisher.put([b"a"], 0)
    publisher.receive(Disconnected(), NODE, 0.2)
    publisher.take_effects()
    publisher.receive(Connected(), NODE, 0.3)
    assert publisher.take_effects() == [SendToNode(Declare(SOURCE, "plant/temp")), SendBytes(batch.data)]


def test_lasting_source_can_not_number_before_it_knows_its_past() -> None:
    publisher = connected(lasting=True)
    with pytest.raises(AssertionError, match="lasting"):
        publisher.put([b"a"], 0)


def test_refusal_ends_the_source_for_good() -> None:
    publisher = connected()
    publisher.put([b"a"], 0)
    publisher.take_effects()
    publisher.receive(Refuse(SOURCE, 1, 2, Code.PERMISSION_DENIED, "no"), NODE, 0.1)
    assert publisher.take_effects() == [PublishRefused(1, Code.PERMISSION_DENIED, "no")]
    assert publisher.state is PublisherState.REFUSED
    publisher.receive(Connected(), NODE, 0.2)
    assert publisher.take_effects() == []


def test_message_without_effect_in_a_state_changes_nothing() -> None:
    publisher = SourcePublisher(SOURCE, "plant/temp")
    publisher.put([b"a"], 0)
    for message in (Ack(SOURCE, 1), Expect(SOURCE, 1), Go(), Disconnected()):
        publisher.receive(message, NODE, 0.0)
    assert publisher.take_effects() == []
    assert publisher.state is PublisherState.DISCONNECTED
    assert len(publisher.unacked) == 1
