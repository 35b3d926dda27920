"""What a durable subscriber is owed decides what it gets, whatever its checkpoint says."""

from reknit.ledger import Ledger
from reknit.outcome import Outcome
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.topic import Pattern
from reknit.wire.messages import Start, Subscribe
from tests.protocol.dispatch.bench import SOURCE, Bench, delivered


def resume(bench: Bench, name: str) -> list[tuple[int, int]]:
    """Subscribe again, after a reconnection to a node that was restored: with a checkpoint."""
    request = Subscribe(1, "plant/**", name, Start(), 1 << 20)
    return delivered(
        bench.give(OpenSubscription(request, Pattern("plant/**"), 0, {}, after={SOURCE: 9}), "q")
    )


def is_balanced(ledger: Ledger) -> bool:
    return all(row.balanced and not row.in_flight for row in ledger.rows())


def test_an_existing_subscriber_is_owed_what_has_not_ended_whatever_its_checkpoint_says() -> None:
    bench = Bench()
    bench.subscribe("audit", position=0)
    bench.publish(1, 3)
    bench.say(Outcome.ACCEPTED, 1, 2)
    assert resume(bench, "audit") == [(2, 4)]


def test_older_events_that_come_later_are_not_owed_to_a_subscriber_from_now_on() -> None:
    bench = Bench()
    bench.publish(4, 2)
    bench.subscribe("audit")
    assert delivered(bench.publish(1, 3)) == []
    assert delivered(bench.publish(6, 2)) == [(6, 8)]
    bench.say(Outcome.ACCEPTED, 6, 8)
    assert is_balanced(bench.journal.ledger)
