"""A publisher, a durable subscriber and a member of a queue as programs that can be killed at any moment.

The publisher's payloads are their own seqs, so that a subscriber can check every event. After a crash it resumes at the
seq that the node reports. The subscriber writes what it received to a file before it accepts it, so that redelivered
events can be counted too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from reknit.batch import Batch
from reknit.client.event_loops import run_until_signal
from reknit.client.session import connect
from reknit.outcome import Code, Outcome
from reknit.seqset import SeqSet

WAIT_S = 20.0
BURST_S = 0.005


def publisher_command(url: str, name: str, topic: str, count: int, rate: float) -> list[str]:
    """The command of a publisher of the events 1 … count; with count 0 it runs until stopped. It prints the last seq."""
    return [sys.executable, "-m", __name__, "publish", url, name, topic, str(count), str(rate)]


def subscriber_command(url: str, name: str, pattern: str, file: Path, reject_every: int = 0) -> list[str]:
    """The command of a durable subscriber that writes a line to a file for every batch; see `ReceivedEvents`."""
    return [sys.executable, "-m", __name__, "subscribe", url, name, pattern, str(file), str(reject_every)]


def member_command(url: str, queue: str, pattern: str, file: Path) -> list[str]:
    """The command of a member of a queue that writes to a file as a subscriber does."""
    return [sys.executable, "-m", __name__, "work", url, queue, pattern, str(file)]


async def publish(url: str, name: str, topic: str, count: int, rate: float) -> None:
    """Publish the events 1 … count, each once over all runs of this program; with count 0, until stopped."""
    async with connect(url, name=name, wait_s=WAIT_S) as session:
        publisher = session.publisher(topic)
        seq = await publisher.resume()
        try:
            async for due in _pace(seq, rate):
                stop = min(due, count + 1) if count else due
                for number in range(publisher.next_seq, stop):
                    await publisher.send(b"%d" % number)
                if stop == count + 1:
                    break
        finally:
            await publisher.flush()
            print(publisher.next_seq - 1, flush=True)


async def _pace(first: int, rate: float) -> AsyncIterator[int]:
    """Every few milliseconds, the seq before which all events are due by now."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        yield first + int((loop.time() - begun + BURST_S) * rate)
        await asyncio.sleep(BURST_S)


async def subscribe(
    url: str, name: str, pattern: str, file: Path, reject_every: int = 0, queue: str = ""
) -> None:
    """Record and accept events until stopped; reject those whose seq is a multiple of `reject_every`."""
    record = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with (
        connect(url, wait_s=WAIT_S) as session,
        session.subscribe(pattern, name=name, queue=queue, history=True, auto_accept=False) as events,
    ):
        async for batch in events.batches():
            assert batch.payloads() == [b"%d" % seq for seq in range(batch.first, batch.stop)], batch
            os.write(record, f"{batch.topic} {batch.source.hex()} {batch.first} {batch.stop}\n".encode())
            _settle(batch, reject_every)


def _settle(batch: Batch, reject_every: int) -> None:
    assert batch.settle is not None
    if reject_every:
        text = f"seq is a multiple of {reject_every}"
        for seq in range(batch.first + -batch.first % reject_every, batch.stop, reject_every):
            batch.settle(seq, seq + 1, Outcome.REJECTED, code=Code.INVALID_ARGUMENT, text=text)
    batch.accept()


class ReceivedEvents:
    """The events that a subscriber recorded in its file, over all its runs."""

    def __init__(self, file: Path) -> None:
        self.seqs: dict[str, SeqSet] = {}
        """By topic."""
        self.repeated = 0
        for line in file.read_text().splitlines() if file.exists() else ():
            topic, _, first, stop = line.split()
            seqs = self.seqs.setdefault(topic, SeqSet())
            before = seqs.count
            seqs.add(int(first), int(stop))
            self.repeated += int(stop) - int(first) - (seqs.count - before)

    def missing(self, topic: str, count: int) -> list[tuple[int, int]]:
        """The ranges of 1 … count that were never received."""
        return self.seqs.get(topic, SeqSet()).missing(1, count + 1)


def main(args: Sequence[str]) -> None:
    """Run the program that the arguments name. SIGTERM shuts it down cleanly."""
    match args:
        case ["publish", url, name, topic, count, rate]:
            program = publish(url, name, topic, int(count), float(rate))
        case ["subscribe", url, name, pattern, file, reject_every]:
            program = subscribe(url, name, pattern, Path(file), int(reject_every))
        case ["work", url, queue, pattern, file]:
            program = subscribe(url, "", pattern, Path(file), queue=queue)
        case _:
            sys.exit(__doc__)
    with suppress(asyncio.CancelledError):
        run_until_signal(program)


if __name__ == "__main__":
    main(sys.argv[1:])
