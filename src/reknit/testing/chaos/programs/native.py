"""Clients with reknit's own protocol: a publisher, a durable subscriber, and a sender and a worker of orders.

native publish URL NAME TOPIC RATE RECORD
native subscribe URL NAME PATTERN RECORD [REJECT_EVERY]
native order URL NAME TOPIC RATE RECORD
native work URL NAME TOPIC RECORD
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from reknit.batch import Batch
from reknit.client.event_loops import run_until_signal
from reknit.client.publish.publisher import Publisher
from reknit.client.session import connect
from reknit.config import Config, TransportSettings
from reknit.errors import ReknitError, Undelivered
from reknit.outcome import Code, Outcome
from reknit.protocol.subscribe.inputs import LossReport
from reknit.testing.chaos.record import DONE, Published, RecordFile, parse, payload, runs

WAIT_S = 600.0
STEP_S = 0.1
ACCEPTED = "ACCEPTED"
BURST_MAX = 500
"""Events that a publisher that fell behind publishes at a time."""
CONFIG = Config(transport=TransportSettings(reconnect_backoff_s_max=1.0))


async def publish(url: str, name: str, topic: str, rate: float, record: RecordFile) -> None:
    """Publish each number once over all runs of this program, and record what is stored."""
    async with connect(url, name=name, wait_s=WAIT_S, config=CONFIG) as session:
        publisher = session.publisher(topic)
        last = Published.read(record.path).last
        if await publisher.resume() <= last:
            record.write("complaint", f"resumes at {publisher.next_seq}, and {last} was stored")
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not record.is_stopping:
            count = min(int((loop.time() - due) * rate), BURST_MAX)
            due += count / rate
            await _publish_some(publisher, name, count, record)
            await asyncio.sleep(STEP_S)
        await publisher.flush()
        record.write("stored", publisher.next_seq - 1)
        record.write(DONE)


async def _publish_some(publisher: Publisher, name: str, count: int, record: RecordFile) -> None:
    if count:
        first = publisher.next_seq
        await publisher.publish_many([payload(name, number) for number in range(first, first + count)])
        record.write("stored", first + count - 1)


async def subscribe(url: str, name: str, pattern: str, record: RecordFile, reject_every: int) -> None:
    """Record and accept events; reject those whose number is a multiple of `reject_every`."""

    def lost(report: LossReport) -> None:
        record.write("lost", report.topic, report.source.hex(), report.start, report.stop, report.reason)

    async with (
        connect(url, wait_s=WAIT_S, config=CONFIG) as session,
        session.subscribe(pattern, name=name, history=True, auto_accept=False, on_lost=lost) as events,
    ):
        async for batch in events.batches():
            _record(batch, record)
            _settle(batch, reject_every)


def _record(batch: Batch, record: RecordFile) -> None:
    payloads = [bytes(one) for one in batch.payloads()]
    for index, count, publisher, number in runs(payloads):
        record.write("got", batch.topic, batch.source.hex(), batch.first + index, publisher, number, count)


def _settle(batch: Batch, reject_every: int) -> None:
    assert batch.settle is not None
    for index, data in enumerate(batch.payloads()) if reject_every else ():
        if parse(bytes(data))[1] % reject_every == 0:
            seq = batch.first + index
            text = f"its number is a multiple of {reject_every}"
            batch.settle(seq, seq + 1, Outcome.REJECTED, code=Code.INVALID_ARGUMENT, text=text)
    batch.accept()


async def order(url: str, name: str, topic: str, rate: float, record: RecordFile) -> None:
    """Send orders one after the other, and record their outcomes. An order that was under way at a kill has none."""
    before = Published.read(record.path)
    number = max(before.outcomes, default=0) + 1_000  # past all that an earlier run may have sent
    async with connect(url, wait_s=WAIT_S, config=CONFIG) as session:
        publisher = session.publisher(topic, outcome=True, resend_released=True)
        while not record.is_stopping:
            number += 1
            try:
                await publisher.publish(payload(name, number))  # returns if it was accepted
            except Undelivered as error:
                record.write("outcome", number, type(error).__name__.upper())
            else:
                record.write("outcome", number, ACCEPTED)
            await asyncio.sleep(1 / rate)
    record.write(DONE)


async def work(url: str, name: str, topic: str, record: RecordFile) -> None:
    """Record and accept orders."""
    async with (
        connect(url, wait_s=WAIT_S, config=CONFIG) as session,
        session.subscribe(topic, auto_accept=False) as events,
    ):
        async for batch in events.batches():
            _record(batch, record)
            batch.accept()


async def keep_on(arguments: list[str]) -> None:
    """Run what the arguments name, again after each error: as a supervisor would."""
    while True:
        record = RecordFile(Path(arguments[5 if arguments[0] in ("publish", "order") else 4]))
        try:
            match arguments:
                case ["publish", url, name, topic, rate, _]:
                    return await publish(url, name, topic, float(rate), record)
                case ["subscribe", url, name, pattern, _, *reject_every]:
                    await subscribe(url, name, pattern, record, int(reject_every[0]) if reject_every else 0)
                case ["order", url, name, topic, rate, _]:
                    return await order(url, name, topic, float(rate), record)
                case ["work", url, name, topic, _]:
                    await work(url, name, topic, record)
                case _:
                    sys.exit(__doc__)
        except ReknitError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        run_until_signal(keep_on(sys.argv[1:]))
