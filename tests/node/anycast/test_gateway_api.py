"""The API for gateways: senders that hear outcomes, and receivers with credit, on a node in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from reknit.batch import Batch
from reknit.client.blocking.session import connect_sync
from reknit.config import AnycastSettings, Config, JournalSettings, NodeSettings, TopicSettings
from reknit.errors import Closed, Full, InvalidConfig, Rejected
from reknit.node.anycast.gateway_api import AnycastApi, Result
from reknit.node.anycast.gateway_ends import GatewayReceiver
from reknit.node.node import Node
from reknit.outcome import Outcome
from reknit.server import build_node
from reknit.topic import Pattern
from tests.node.node_processes import run, until

ORDERS = "orders/new"
RULES = (
    TopicSettings(pattern=Pattern("orders/**"), distribution="balanced"),
    TopicSettings(pattern=Pattern("all/**"), distribution="multicast"),
)


def config(**sections: object) -> Config:
    given = {
        "node": NodeSettings(name="here", listen=("tcp://127.0.0.1:0",)),
        "journal": JournalSettings(kind="memory"),
        "topics": RULES,
        **sections,
    }
    return Config(**given)  # type: ignore[arg-type]


@asynccontextmanager
async def node(**sections: object) -> AsyncIterator[Node]:
    async with build_node(config(**sections)) as made:
        yield made


class Sending:
    """A sender and all that it heard."""

    def __init__(self, anycast: AnycastApi, topic: str = ORDERS, resend: bool = True) -> None:
        self.results: list[Result] = []
        self.paths: list[bool] = []
        self.sender = anycast.sender(topic, self._hear, self.paths.append, resend)

    def _hear(self, results: Sequence[Result]) -> None:
        self.results += results

    @property
    def outcomes(self) -> list[tuple[int, int, str]]:
        return [(one.start, one.stop, Outcome(one.outcome).name) for one in self.results]


class Taking:
    """A receiver and all that it got."""

    def __init__(self, made: Node, topic: str = "orders/**", credit: int = 100) -> None:
        self.batches: list[Batch] = []
        self.receiver: GatewayReceiver = made.anycast.receiver(topic, self._take, name="taker")
        if credit:
            self.receiver.credit(credit)

    def _take(self, batch: Batch, attempt: int) -> None:
        self.batches.append(batch)

    def say(self, outcome: Outcome, batch: int = 0, code: int = 0, text: str = "") -> None:
        one = self.batches[batch]
        self.receiver.settle(one.topic, one.source, one.first, one.stop, outcome, code, text)


def test_a_sender_hears_the_outcome_of_each_range() -> None:
    async def test() -> None:
        async with node() as made:
            sending, taking = Sending(made.anycast), Taking(made)
            assert sending.sender.offer([b"1", b"2", b"3"]) == (1, 4)
            await until(lambda: bool(taking.batches))
            batch = taking.batches[0]
            assert (batch.payloads(), sending.sender.unsettled) == ([b"1", b"2", b"3"], 3)
            settle = taking.receiver.settle
            settle(batch.topic, batch.source, 2, 3, Outcome.REJECTED, 3, "no good")
            settle(batch.topic, batch.source, 1, 2, Outcome.ACCEPTED)
            settle(batch.topic, batch.source, 3, 4, Outcome.RECEIVED)
            settle(batch.topic, batch.source, 3, 4, Outcome.MODIFIED)
            await until(lambda: len(sending.results) == 4)
            assert sending.outcomes == [
                (2, 3, "REJECTED"),
                (1, 2, "ACCEPTED"),
                (3, 4, "RECEIVED"),
                (3, 4, "MODIFIED"),
            ]
            rejected = sending.results[0]
            assert (rejected.code, rejected.text, rejected.node, rejected.path) == (
                3,
                "no good",
                "here",
                "taker",
            )
            assert sending.sender.unsettled == 0
            letters = made.config.dispatch.dead_letter_topic
            await until(
                lambda: (
                    sum(s.count for (t, _), s in made.journal.ledger.published.items() if t == letters) == 2
                )
            )

    run(test)


def test_credit_counts_events_and_drain_gives_back_the_rest() -> None:
    async def test() -> None:
        async with node() as made:
            sending, taking = Sending(made.anycast), Taking(made, credit=2)
            sending.sender.offer([b"1", b"2", b"3", b"4", b"5"])
            await until(lambda: sum(batch.count for batch in taking.batches) == 2)
            assert taking.receiver.waiting == 3
            taking.receiver.credit(1)
            await until(lambda: sum(batch.count for batch in taking.batches) == 3)
            taking.receiver.credit(10)
            await until(lambda: sum(batch.count for batch in taking.batches) == 5)
            assert taking.receiver.drain() == 8
            sending.sender.offer([b"6"])
            await until(lambda: taking.receiver.waiting == 1)
            taking.receiver.credit(1)
            await until(lambda: sum(batch.count for batch in taking.batches) == 6)

    run(test)


def test_a_sender_is_told_when_somebody_is_there() -> None:
    async def test() -> None:
        async with node() as made:
            sending = Sending(made.anycast)
            assert not sending.sender.has_path
            taking = Taking(made, credit=0)
            await until(lambda: sending.paths == [True])
            assert sending.sender.has_path
            taking.receiver.close()
            await until(lambda: sending.paths == [True, False])
            sending.sender.offer([b"x"])
            await until(lambda: sending.outcomes == [(1, 2, "RELEASED")])

    run(test)


@pytest.mark.parametrize(("is_clean", "outcome"), [(True, "ACCEPTED"), (False, "MODIFIED")])
def test_what_a_closed_receiver_had_is_released_or_in_doubt(is_clean: bool, outcome: str) -> None:
    async def test() -> None:
        async with node() as made:
            sending, leaving = Sending(made.anycast), Taking(made)
            sending.sender.offer([b"x"])
            await until(lambda: bool(leaving.batches))
            other = Taking(made)
            leaving.receiver.close(is_clean)
            leaving.receiver.close(is_clean)
            if is_clean:
                await until(lambda: bool(other.batches))
                other.say(Outcome.ACCEPTED)
            await until(lambda: sending.outcomes == [(1, 2, outcome)])

    run(test)


def test_on_a_topic_of_the_journal_kept_is_accepted() -> None:
    async def test() -> None:
        async with node() as made:
            sending = Sending(made.anycast, "plain/topic")
            assert sending.sender.has_path
            sending.sender.offer([b"1", b"2"])
            await until(lambda: sending.outcomes == [(1, 3, "ACCEPTED")])

    run(test)


def test_outcomes_of_all_receivers_join() -> None:
    async def test() -> None:
        async with node() as made:
            sending = Sending(made.anycast, "all/x")
            one, two = Taking(made, "all/**"), Taking(made, "all/*")
            sending.sender.offer([b"x"])
            await until(lambda: bool(one.batches) and bool(two.batches))
            one.say(Outcome.RELEASED)
            await asyncio.sleep(0)
            assert sending.results == []
            two.say(Outcome.ACCEPTED)
            await until(lambda: sending.outcomes == [(1, 2, "ACCEPTED")])
            assert "RELEASED by taker" in sending.results[0].text

    run(test)


def test_limits_and_ends_of_a_sender() -> None:
    async def test() -> None:
        async with node(anycast=AnycastSettings(sender_unsettled_max=2)) as made:
            sending = Sending(made.anycast)
            sending.sender.offer([b"1", b"2"])
            with pytest.raises(Full, match="sender_unsettled_max"):
                sending.sender.offer([b"3"])
            sending.sender.close()
            with pytest.raises(Closed):
                sending.sender.offer([b"3"])

    run(test)


def test_a_pattern_that_reaches_beyond_one_rule_watches() -> None:
    async def test() -> None:
        async with node() as made:
            got = [
                made.anycast.distribution(text)
                for text in ("orders/new", "orders/**", "**", "plain", "all/*")
            ]
            assert got == ["balanced", "balanced", "journal", "journal", "multicast"]

    run(test)


def test_rules_with_topics_in_common_are_refused() -> None:
    rules = (
        TopicSettings(pattern=Pattern("orders/old"), durability="memory"),
        TopicSettings(pattern=Pattern("orders/**"), distribution="closest"),
    )

    async def test() -> None:
        with pytest.raises(InvalidConfig, match="in common"):
            async with node(topics=rules):
                pass

    run(test)


def test_outcomes_without_asyncio() -> None:
    async def serve(started: asyncio.Future[str], done: asyncio.Event) -> None:
        async with node() as made:
            taking = Taking(made)
            started.set_result(made.urls[0])
            await until(lambda: len(taking.batches) == 1)
            taking.say(Outcome.ACCEPTED)
            await until(lambda: len(taking.batches) == 2)
            taking.say(Outcome.REJECTED, 1, 3, "no")
            await done.wait()

    def publish(url: str) -> None:
        with connect_sync(url) as session:
            publisher = session.publisher(ORDERS, resend_released=True)
            assert publisher.publish(b"1") is Outcome.ACCEPTED
            with pytest.raises(Rejected, match="no"):
                publisher.publish(b"2")

    async def test() -> None:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        done = asyncio.Event()
        serving = asyncio.create_task(serve(started, done))
        await asyncio.to_thread(publish, await started)
        done.set()
        await serving

    run(test)


def test_the_ledger_tells_of_every_rule_and_would_show_a_silent_loss() -> None:
    async def test() -> None:
        async with node() as made:
            sending, taking = Sending(made.anycast), Taking(made, credit=1)
            sending.sender.offer([b"1", b"2"])
            await until(lambda: bool(taking.batches))

            async def ends(kind: str) -> tuple[int, int, bool]:
                rows = await made.figures.ledger()
                [row] = [row for row in rows if row["subscriber"] == "anycast/orders/**"]
                return row[kind], row["in_flight"], row["balanced"]

            assert await ends("published") == (2, 2, True)
            taking.say(Outcome.ACCEPTED)
            await until(lambda: len(sending.results) == 1)
            assert await ends("accepted") == (1, 1, True)
            made.anycast.ledger.end(ORDERS, sending.sender.source, Result(2, 3, Outcome.ACCEPTED))
            made.anycast.ledger._rows.clear()  # as if an end had got lost
            assert (await ends("accepted"))[-1] is False

    run(test)


def test_retention_may_remove_what_is_not_of_these_topics() -> None:
    async def test() -> None:
        async with node() as made:
            sending = Sending(made.anycast, "plain/topic")
            sending.sender.offer([b"x" * 1000] * 100)
            await until(lambda: bool(sending.results))
            before = made.journal.ledger.accounts["anycast/orders/**"].floor
            made.anycast.writer.move_floor(0.0)
            assert made.journal.ledger.accounts["anycast/orders/**"].floor > before + 100_000

    run(test)
