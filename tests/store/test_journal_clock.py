"""Retention by age goes by the journal's own time: steps of the time of day make nothing older."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from reknit.store.disk import DiskJournal
from reknit.store.journal import Journal
from reknit.store.log.retention import Retention
from reknit.store.memory import MemoryJournal
from tests.store.journals import batch, entries, keep

DAY_S = 86_400
HOUR = Retention(age_s_max=3_600)


@dataclass
class Machine:
    """A machine with a clock that can be set."""

    day_us: int = 1_700_000_000_000_000
    elapsed_s: float = 5_000.0

    def time_us(self) -> int:
        return self.day_us

    def elapsed(self) -> float:
        return self.elapsed_s

    def wait(self, seconds: float) -> None:
        self.elapsed_s += seconds
        self.day_us += int(seconds * 1e6)

    def set_forward(self, seconds: float) -> None:
        self.day_us += int(seconds * 1e6)

    def reboot(self) -> None:
        """Time that elapses begins anew."""
        self.elapsed_s = 3.0

    def open(self, directory: Path | None) -> Journal:
        if directory is None:
            return MemoryJournal(HOUR, segment_bytes=4_096, now_us=self.time_us, elapsed=self.elapsed)
        return DiskJournal(
            directory,
            HOUR,
            segment_bytes=4_096,
            preallocate_bytes=4_096,
            now_us=self.time_us,
            elapsed=self.elapsed,
        )


@pytest.fixture(params=["memory", "disk"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "disk" else None


def fill(journal: Journal, first: int = 1) -> None:
    for seq in range(first, first + 20):
        keep(journal, batch(seq, size=500))


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
def test_a_step_removes_nothing_and_age_still_counts(directory: Path | None, step_s: int) -> None:
    machine = Machine()
    journal = machine.open(directory)
    fill(journal)
    machine.set_forward(step_s)
    assert journal.trim() == []
    machine.wait(3_000)
    assert journal.trim() == []
    machine.wait(601)
    assert [(one.start, one.stop) for one in journal.trim()] == [(1, 21)]
    journal.close()


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_step_before_a_restart_makes_nothing_older_after_it(tmp_path: Path, is_saved: bool) -> None:
    machine = Machine()
    journal = machine.open(tmp_path)
    fill(journal)
    if is_saved:  # then nothing but the step is left to save
        journal.checkpoint()
    machine.set_forward(DAY_S)
    journal.close()
    machine.reboot()
    machine.wait(60)
    journal = machine.open(tmp_path)
    assert journal.trim() == []
    assert len(entries(journal)) == 20
    machine.wait(3_600)
    assert journal.trim() != []
    journal.close()


def test_the_time_between_two_processes_counts(tmp_path: Path) -> None:
    machine = Machine()
    journal = machine.open(tmp_path)
    fill(journal)
    journal.close()
    machine.wait(2 * 3_600)
    journal = machine.open(tmp_path)
    assert journal.trim() != []
    journal.close()


def test_a_clock_that_is_set_back_between_two_processes_does_not_stop_retention(tmp_path: Path) -> None:
    machine = Machine()
    journal = machine.open(tmp_path)
    fill(journal)
    journal.close()
    machine.set_forward(-DAY_S)
    journal = machine.open(tmp_path)
    assert journal.trim() == []
    machine.wait(3_601)
    assert journal.trim() != []
    journal.close()


def test_positions_are_found_by_the_time_of_day(directory: Path | None) -> None:
    machine = Machine()
    journal = machine.open(directory)
    fill(journal)
    end = journal.end
    machine.set_forward(DAY_S)
    machine.wait(10)
    fill(journal, 21)
    assert journal.position_at(machine.day_us) == end
    assert journal.position_at(machine.day_us - 1) == 0
    journal.close()
