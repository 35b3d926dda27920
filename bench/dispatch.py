"""The cost of dispatching: `python -m bench.dispatch`, in one process, without a network.

    queued     many events wait for a subscriber and 10,000 more are in back-off: CPU time per event that is delivered
               and accepted, which must not grow with the number of waiting events
    poisoned   events with keys, one of which always fails, beside the same without failures: the cost of the others
    letters    many dead letters on disk: write them, list the newest, list all, redrive all

Times are CPU times of this process. `--json FILE` writes them to a file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from reknit.batch import Batch
from reknit.config import Config, LimitSettings, TopicSettings
from reknit.environment import time_us
from reknit.node.core.core import Core
from reknit.outcome import Outcome
from reknit.protocol.effects import DeadLetter
from reknit.protocol.machine import Peer
from reknit.store.disk import DiskJournal
from reknit.store.journal import Journal
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.messages import Ask, Credit, DispositionRow, Settle, Start, Subscribe

SOURCE = b"s" * 16
TOPIC = "bench/dispatch"
PAYLOAD = bytes(100)
BATCH = 100
BACKING_OFF = 10_000
MEASURED = 20_000
FOR_EVER_S = 1e6


class Stand:
    """A node's core with its journal, and a count of what it delivers."""

    def __init__(self, journal: Journal, config: Config | None = None) -> None:
        self.journal = journal
        self.core = Core("bench", "epoch", journal, config or Config(), self, Random(1), now_us=time_us)
        self._number = 0
        self.settled = 0
        self.seq = 0

    def send(self, peer: Peer, buffers: Any) -> None:
        """Discard what is sent: only the work before this point is measured."""

    def commit(self, number: int, sync: bool) -> None:
        self._number = number

    def run(self, now: float = 0.0) -> None:
        """Run the core until it is idle."""
        while True:
            self.core.run(now)
            if self.journal.staged_end == self.journal.end:
                return
            self.core.durable(self._number, self.journal.commit(sync=False), now)

    def publish(self, count: int, **columns: list[Any]) -> None:
        batch = Batch.build(SOURCE, TOPIC, self.seq + 1, [PAYLOAD] * count, 0, columns=columns or None)
        self.seq = batch.stop - 1
        self.journal.stage(bytes(batch.data), [batch.head])

    def subscribe(self, credit: int) -> None:
        self.core.receive(Subscribe(1, TOPIC, "bench", Start(), credit), "p", 0.0)
        self.run()

    def settle(self, start: int, stop: int, outcome: Outcome, now: float = 0.0, delay_s: float = 0.0) -> None:
        self.settled += 1
        row = DispositionRow(TOPIC, SOURCE, start, stop, int(outcome), delay_s=delay_s)
        self.core.receive(Settle(1, self.settled, [row]), "p", now)
        self.run(now)

    @property
    def queue(self) -> Any:
        return self.core.dispatch.queues["p", 1]


def cpu(work: Callable[[], object]) -> float:
    """The CPU time that something takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


# -- queued events


def queued(count: int) -> float:
    """Microseconds per event, while `count` events wait and 10,000 are in back-off."""
    stand = Stand(MemoryJournal(staged_bytes_max=1 << 40))
    stand.subscribe(1 << 40)
    for _ in range(BACKING_OFF // BATCH):
        stand.publish(BATCH)
    stand.run()
    for seq in range(1, BACKING_OFF + 1):  # one by one, so that each has a retry time of its own
        stand.settle(seq, seq + 1, Outcome.FAILED, delay_s=FOR_EVER_S)
    stand.queue.credit.use(stand.queue.room)
    for _ in range(count // BATCH):
        stand.publish(BATCH)
    stand.run()
    assert len(stand.queue.retries) == BACKING_OFF, "10,000 are in back-off"
    total = min(MEASURED, count)
    return cpu(lambda: _drain(stand, total)) / total * 1e6


def _drain(stand: Stand, total: int) -> None:
    """Grant credit for a batch, accept it, and repeat."""
    done = BACKING_OFF
    while done < BACKING_OFF + total:
        stand.core.receive(Credit(1, stand.queue.credit.used + 1), "p", 0.0)
        stand.run()
        passed = stand.queue.cursor.passed_to((TOPIC, SOURCE))
        assert passed > done + 1, "a batch was delivered"
        stand.settle(done + 1, passed, Outcome.ACCEPTED)
        done = passed - 1


# -- a poisoned key


def keyed(is_poisoned: bool, count: int = 20_000, keys: int = 100) -> float:
    """Microseconds per event of the keys that do not fail."""
    rule = TopicSettings(pattern=Pattern(TOPIC), order="key", attempts_max=1 << 30)
    stand = Stand(MemoryJournal(staged_bytes_max=1 << 40), Config(topics=(rule,)))
    stand.subscribe(1 << 40)
    for first in range(0, count, BATCH):
        stand.publish(BATCH, key=[f"key {(first + at) % keys}" for at in range(BATCH)])
    well = 0

    def work() -> None:
        nonlocal well
        stand.run()
        for seq in range(1, count + 1):
            if is_poisoned and seq % keys == 1:
                if seq == 1:
                    stand.settle(seq, seq + 1, Outcome.FAILED, delay_s=FOR_EVER_S)
            else:
                stand.settle(seq, seq + 1, Outcome.ACCEPTED)
                well += 1

    spent = cpu(work)
    assert stand.queue.unsettled.in_flight == 0, "every event that does not fail was delivered and accepted"
    return spent / well * 1e6


# -- dead letters


def letters(count: int, folder: Path) -> Iterator[tuple[str, float]]:
    """(operation, microseconds per dead letter) for dead letters on disk."""
    config = Config(limits=LimitSettings(dead_letters_max=0))
    stand = Stand(DiskJournal(folder, staged_bytes_max=1 << 40), config)
    for _ in range(count // 1000):
        stand.publish(1000)
    stand.run()
    office, told = stand.core.dead_letter_admin, 1000

    def write() -> None:
        for start in range(1, count, told):
            why = (14, "attempts_exhausted", "3 attempts failed", 3)
            stand.core.dead_letters.stage(DeadLetter("bench", TOPIC, SOURCE, start, start + told, *why))
            stand.journal.commit(sync=False)

    yield "write one", cpu(write) / count * 1e6
    stand.journal.checkpoint()
    yield "list the newest 20, in all", cpu(lambda: office.page({"before": 1 << 62, "limit": 20})) * 1e6
    yield "list one", cpu(lambda: _all(office.page, count)) / count * 1e6
    middle = {"after": count // 2, "limit": 1000}
    yield "a page of 1,000 from the middle, in all", cpu(lambda: office.page(middle)) * 1e6

    def redrive() -> None:
        after, done = 0, 0
        while done < count:
            body = office.redrive({"after": after})
            done, after = done + body["count"], body["next"]
            stand.journal.commit(sync=False)

    yield "redrive one", cpu(redrive) / count * 1e6
    assert stand.core.dead_letters.waiting.count == 0, "all of them were redriven"
    again = stand.core.dead_letter_admin.redrive({})
    assert again["count"] == 0, "no dead letter is redriven twice"
    stand.core.order(Ask(1, "redrive", {}), "p", 0.0)
    stand.journal.close()


def _all(page: Callable[[dict[str, Any]], dict[str, Any]], count: int) -> None:
    after, seen = 0, 0
    while True:
        body = page({"after": after, "limit": 1000})
        seen, after = seen + len(body["letters"]), body["next"]
        if body["is_end"]:
            break
    assert seen == count, f"{seen} of {count} dead letters were listed"


# -- main


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dispatch", description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=1_000_000, help="the highest number of waiting events")
    parser.add_argument(
        "--letters", type=int, default=1_000_000, help="the number of dead letters; 0: skip them"
    )
    parser.add_argument("--json", type=Path, help="the file to write the figures to")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {"queued": {}, "poisoned": {}, "letters": {}}
    count = 1_000
    while count <= arguments.queued:
        figures["queued"][f"{count:,}"] = min(queued(count) for _ in range(2))
        count *= 10
    figures["poisoned"] = {"all well": keyed(False), "one key poisoned": keyed(True)}
    if arguments.letters:
        with tempfile.TemporaryDirectory() as folder:
            figures["letters"] = dict(letters(arguments.letters, Path(folder)))
    _print(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _print(figures: dict[str, dict[str, float]]) -> None:
    titles = {
        "queued": "per event, by the number of queued events, with 10,000 in back-off",
        "poisoned": "per event of a key that does not fail",
        "letters": "dead letters",
    }
    for name, rows in ((name, rows) for name, rows in figures.items() if rows):
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        made.add_column(titles[name])
        made.add_column("CPU time in µs", justify="right")
        for what, micros in rows.items():
            made.add_row(what, f"{micros:,.2f}")
        Console(highlight=False).print(made, "")


if __name__ == "__main__":
    main()
