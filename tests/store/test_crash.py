"""A real process, killed with SIGKILL while it commits: what it said it had kept is there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reknit.processes.process import start_tied
from reknit.store.disk import DiskJournal
from tests.store.journals import SOURCE_A, SOURCE_B, entries

WRITER = """
import sys, threading
from reknit.batch import Batch
from reknit.outcome import FinalOutcome
from reknit.store.disk import DiskJournal
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.store.log.retention import Retention

directory, seed = sys.argv[1], int(sys.argv[2])
retention = Retention(bytes_max=200_000 if seed % 2 else None)
journal = DiskJournal(
    directory, retention, segment_bytes=30_000, preallocate_bytes=16_384, tail_cache_bytes=10_000
)
journal.stage_record(SubscriberOpened.at("audit", "**", {}, 0, 1))
first = journal.sources("t/a").get(b"a" * 16, 0) + 1
other = journal.sources("t/b").get(b"b" * 16, 0) + 1

def checkpoints():
    while True:
        journal.checkpoint()
        journal.trim()

threading.Thread(target=checkpoints, daemon=True).start()
print("open", flush=True)
while True:
    for _ in range(1 + (first + seed) % 4):
        count = 1 + (first * 7 + seed) % 9
        made = [
            Batch.build(b"a" * 16, "t/a", first, [b"x" * (first % 200)] * count, time_us=1),
            Batch.build(b"b" * 16, "t/b", other, [b"y" * 50], time_us=1),
        ]
        journal.stage(b"".join([one.data for one in made]), [one.head for one in made])
        row = OutcomeRow("t/a", b"a" * 16, first, first + count, FinalOutcome.ACCEPTED)
        journal.stage_record(Outcomes("audit", [row]))
        first += count
        other += 1
    journal.commit()
    print(first - 1, other - 1, flush=True)
"""


@pytest.mark.real
def test_what_was_committed_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(7)
    directory = tmp_path / "journal"
    for round_ in range(15):
        kept_a, kept_b = run_and_kill(directory, round_, rng.uniform(0.001, 0.12))
        check(directory, kept_a, kept_b)


def run_and_kill(directory: Path, seed: int, after_s: float) -> tuple[int, int]:
    """The last seqs that the writer said were kept."""
    command = [sys.executable, "-c", WRITER, str(directory), str(seed)]
    with start_tied(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().split("\n")[:-1]  # the last may be cut short
    kept_a, kept_b = lines[-1].split() if lines else (0, 0)
    return int(kept_a), int(kept_b)


def check(directory: Path, kept_a: int, kept_b: int) -> None:
    journal = DiskJournal(directory)
    assert journal.report.lost == ()
    assert journal.report.missing_bytes == 0
    held = entries(journal)
    for source, topic, kept in ((SOURCE_A, "t/a", kept_a), (SOURCE_B, "t/b", kept_b)):
        mine = [entry.head for entry in held if entry.head.source == source]
        expected = journal.first_held(topic, source)
        for head in mine:
            assert head.first == expected
            expected = head.stop
        assert expected > kept
        if mine:
            assert journal.ledger.published[topic, source].ranges() == [(1, expected)]
        assert [entry.head for entry in journal.find(topic, source, 1, expected)] == mine
        assert journal.ledger.published[topic, source].covers(1, kept + 1)
    for row in journal.ledger.rows():
        assert row.problems == ()
    journal.close()
