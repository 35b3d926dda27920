"""The simulated disk: what was synced survives a power cut, the rest may not, and a kill loses nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from reknit.testing.fabric.virtual.disk import VirtualDisk

OLD, SYNCED, LATER = b"o" * 4096, b"s" * 4096, b"l" * 4096


def _after(tmp_path: Path, seed: int, is_power_lost: bool) -> bytes:
    path = tmp_path / f"{seed}"
    path.write_bytes(OLD + OLD)
    disk = VirtualDisk(Random(seed), lambda seconds: None)
    fd = os.open(path, os.O_RDWR)
    disk.pwritev(fd, [SYNCED], 0)
    disk.fdatasync(fd)
    disk.pwritev(fd, [LATER[:2000], LATER[2000:]], 4096)
    os.close(fd)
    disk.crash(is_power_lost)
    return path.read_bytes()


def test_a_power_cut_loses_keeps_or_tears_what_was_not_synced(tmp_path: Path) -> None:
    after = [_after(tmp_path, seed, is_power_lost=True) for seed in range(40)]
    assert all(data[:4096] == SYNCED for data in after)
    rests = {data[4096:] for data in after}
    assert {OLD, LATER} < rests
    assert all(rest == LATER[: (cut := rest.count(b"l"))] + OLD[cut:] for rest in rests)


def test_a_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    assert _after(tmp_path, 0, is_power_lost=False) == SYNCED + LATER


def test_a_full_disk_refuses_writes(tmp_path: Path) -> None:
    disk = VirtualDisk(Random(0), lambda seconds: None)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left") as raised:
        disk.pwritev(0, [b"x"], 0)
    assert raised.value.errno == errno.ENOSPC
