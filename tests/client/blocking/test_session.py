"""The blocking client does what the async one does, from any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import reknit
from reknit.config import Config, LimitSettings
from reknit.errors import Closed, InvalidTopic, LocalError, NotConnected, TooLarge
from reknit.protocol.subscribe.subscriber import LossReport

pytestmark = pytest.mark.real


def loops() -> int:
    return sum(thread.name == "reknit-loop" for thread in threading.enumerate())


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_events_arrive_in_order(url: str) -> None:
    with reknit.connect_sync(url) as session, session.subscribe("plant/**") as events:
        session.publish("plant/temp", "21.5")
        session.publish_many("plant/temp", numbers(3))
        got = [next(events) for _ in range(4)]
    assert [event.payload for event in got] == [b"21.5", b"0", b"1", b"2"]
    assert [event.seq for event in got] == [1, 2, 3, 4]


def test_what_is_published_is_kept_when_the_call_returns(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish("plant/temp", b"21.5")
        assert session.status()["journal"]["events"] == 1


def test_sent_events_are_kept_after_flush(url: str) -> None:
    with reknit.connect_sync(url) as session:
        publisher = session.publisher("plant/temp")
        for payload in numbers(20_000):
            publisher.send(payload)
        publisher.flush()
        assert session.status()["journal"]["events"] == 20_000


def test_closing_the_session_keeps_what_was_sent(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publisher("plant/temp").send(b"1")
        with session.publisher("plant/temp") as publisher:
            publisher.send(b"2")
    with reknit.connect_sync(url) as session:
        assert session.status()["journal"]["events"] == 2


def test_send_then_publish_keeps_the_order(url: str) -> None:
    with reknit.connect_sync(url) as session, session.subscribe("a") as events:
        publisher = session.publisher("a")
        for number in range(100):
            publisher.send(b"%d" % number)
            if number % 10 == 0:
                publisher.publish(b"p%d" % number)
        publisher.flush()
        wanted = [
            part for n in range(100) for part in ([b"%d" % n, b"p%d" % n] if n % 10 == 0 else [b"%d" % n])
        ]
        assert [next(events).payload for _ in wanted] == wanted


def test_many_threads_publish_on_one_session(url: str) -> None:
    with reknit.connect_sync(url) as session, session.subscribe("**") as events:

        def publish(thread: int) -> None:
            for number in range(50):
                session.publish(f"thread/{thread}", b"%d" % number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(publish, range(4)))
        got: dict[str, list[bytes]] = {}
        for _ in range(200):
            event = next(events)
            got.setdefault(event.topic, []).append(event.payload)
    assert got == {f"thread/{thread}": numbers(50) for thread in range(4)}


def test_many_threads_send_through_one_publisher(url: str) -> None:
    with reknit.connect_sync(url) as session, session.subscribe("a") as events:
        publisher = session.publisher("a")

        def send(thread: int) -> None:
            for number in range(1_000):
                publisher.send(b"%d %d" % (thread, number))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, range(4)))
        publisher.flush()
        got = [next(events).payload for _ in range(4_000)]
    assert sorted(got) == sorted(b"%d %d" % (t, n) for t in range(4) for n in range(1_000))


def test_a_small_window_holds_senders_back_without_loss(url: str) -> None:
    limits = LimitSettings(publish_window_bytes=4096, batch_bytes=512)
    with reknit.connect_sync(url, config=Config(limits=limits)) as session:
        publisher = session.publisher("a")
        for _ in range(500):
            publisher.send(b"x" * 100)
        publisher.flush()
        assert session.status()["journal"]["events"] == 500


def test_batches_have_everything(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(1_000))
        with session.subscribe("a", history=True, idle_s=0.2) as events:
            payloads = [payload for batch in events.batches() for payload in batch.payloads()]
    assert payloads == numbers(1_000)


def test_an_idle_subscription_ends(url: str) -> None:
    with reknit.connect_sync(url) as session, session.subscribe("a", idle_s=0.05) as events:
        assert list(events) == []


def test_taken_events_are_accepted_and_the_rest_comes_again(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(10))
        with session.subscribe("a", name="audit", history=True) as events:
            assert [next(events).payload for _ in range(4)] == numbers(4)
        assert session.ledger()[0]["accepted"] == 4
        with session.subscribe("a", name="audit", idle_s=0.2) as events:
            assert [event.payload for event in events] == numbers(10)[4:]


def test_the_event_being_processed_comes_again_after_an_exception(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(3))
        with suppress(ZeroDivisionError), session.subscribe("a", name="audit", history=True) as events:
            for event in events:
                1 // int(event.seq == 1)
        with session.subscribe("a", name="audit", idle_s=0.2) as events:
            assert [event.payload for event in events] == [b"1", b"2"]


def test_a_checkpoint_does_not_skip_what_was_not_processed(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(10))
        with session.subscribe("a", history=True) as events:
            for _ in range(4):
                next(events)
            here = events.checkpoint  # the fourth is still being processed
        with session.subscribe("a", start=here, idle_s=0.2) as events:
            assert [event.payload for event in events] == numbers(10)[3:]


def test_outcomes_may_come_from_other_threads(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(100))
        with (
            session.subscribe("a", name="audit", history=True, auto_accept=False) as events,
            ThreadPoolExecutor(4) as pool,
        ):
            for _ in range(100):
                event = next(events)
                pool.submit(event.reject if event.seq == 7 else event.accept)
        row = next(row for row in session.ledger() if row["topic"] == "a")
    assert (row["accepted"], row["dead_lettered"], row["in_flight"]) == (99, 1, 0)


def test_a_rejected_event_stays_rejected_under_auto_accept(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish_many("a", numbers(3))
        with session.subscribe("a", name="audit", history=True, idle_s=0.2) as events:
            for event in events:
                if event.seq == 2:
                    event.reject(text="not a number")
        row = next(row for row in session.ledger() if row["topic"] == "a")
    assert (row["accepted"], row["dead_lettered"]) == (2, 1)


def test_closing_from_another_thread_ends_the_iteration(url: str) -> None:
    session = reknit.connect_sync(url).open()
    subscription = session.subscribe("a")
    with subscription as events:
        threading.Timer(0.1, subscription.close).start()
        assert list(events) == []
    session.close()


def test_a_callback_can_not_wait_for_itself(url: str) -> None:
    raised: list[BaseException] = []
    with reknit.connect_sync(url) as session:

        def on_lost(report: LossReport) -> None:
            try:
                session.status()
            except LocalError as error:
                raised.append(error)

        subscription = session.subscribe("a", on_lost=on_lost)
        session._loop.call(lambda: on_lost(LossReport("a", bytes(16), 1, 2, "RETENTION")))
        assert len(raised) == 1
        del subscription


def test_misuse_is_told_to_the_caller(url: str) -> None:
    limits = LimitSettings(payload_bytes_max=10)
    with reknit.connect_sync(url, config=Config(limits=limits)) as session:
        with pytest.raises(InvalidTopic):
            session.publish("a//b", b"")
        with pytest.raises(InvalidTopic):
            session.subscribe("")
        publisher = session.publisher("a")
        with pytest.raises(TooLarge):
            publisher.send(b"x" * 11)
        publisher.close()
        with pytest.raises(Closed):
            publisher.publish(b"x")
    with pytest.raises(Closed):
        session.publish("a", b"")


def test_no_node_is_an_error_and_leaves_no_thread() -> None:
    before = loops()
    with pytest.raises(NotConnected), reknit.connect_sync("tcp://127.0.0.1:9", wait_s=0):
        pass
    assert loops() == before


def test_a_closed_session_leaves_no_thread(url: str) -> None:
    before = loops()
    with reknit.connect_sync(url) as session:
        session.publish("a", b"")
    assert loops() == before
    session.close()


def test_crossing_threads_costs_little_per_event(url: str) -> None:
    """A hundred thousand events take far fewer crossings: counted, not timed."""
    crossings = 0
    with reknit.connect_sync(url) as session:
        thread = session._loop
        soon = thread.soon

        def counted(function: object) -> None:
            nonlocal crossings
            crossings += 1
            soon(function)  # type: ignore[arg-type]

        thread.soon = counted  # type: ignore[method-assign]
        publisher = session.publisher("a")
        for payload in numbers(100_000):
            publisher.send(payload)
        publisher.flush()
    assert crossings < 10_000
