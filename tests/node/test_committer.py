"""Group commit: nothing that was asked for is forgotten, whatever the disk does meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from reknit.errors import JournalError, JournalFull
from reknit.node import committer
from reknit.node.committer import SMALL_BYTES, CommitThread
from reknit.store.journal import Journal

PATIENCE_S = 150.0


class Disk:
    """A journal as far as a committer knows it: commits end when they may, or fail."""

    def __init__(self) -> None:
        self.staged_bytes = SMALL_BYTES + 1
        self.commits: list[tuple[str, bool]] = []
        self.may_end = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.failures = 0

    def commit(self, sync: bool) -> int:
        self.commits.append((threading.current_thread().name, sync))
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        if self.failures:
            self.failures -= 1
            raise JournalFull("no room", "a disk")
        return len(self.commits)


class Told:
    """Records the committer's calls."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.failed: list[JournalError] = []
        self.on_kept: Callable[[int], None] = lambda number: None
        self._moved = asyncio.Event()

    def keep(self, number: int, end: int) -> None:
        self.kept.append(number)
        self._moved.set()
        self.on_kept(number)

    def fail(self, error: JournalError) -> None:
        self.failed.append(error)
        self._moved.set()

    async def until(self, number: int, failures: int = 0) -> None:
        """Return when everything up to a number is kept, and so many commits have failed."""
        async with asyncio.timeout(PATIENCE_S):
            while max(self.kept, default=0) < number or len(self.failed) < failures:
                self._moved.clear()
                await self._moved.wait()


def run(test: Callable[[Disk, Told, CommitThread], Awaitable[None]], in_memory: bool = False) -> None:
    async def main() -> None:
        disk, told = Disk(), Told()
        made = CommitThread(cast(Journal, disk), told.keep, told.fail, in_memory)
        try:
            await test(disk, told, made)
        finally:
            disk.may_end.release(100)
            await made.stop()

    asyncio.run(main())


def test_what_comes_during_a_commit_is_the_next_group() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        made.request(1, False)
        await asyncio.to_thread(disk.begun.acquire)
        for number, sync in ((2, False), (3, True), (4, False)):
            made.request(number, sync)
        disk.may_end.release(2)
        await told.until(4)
        assert told.kept == [1, 4]
        assert disk.commits == [("reknit-commit", False), ("reknit-commit", True)]

    run(test)


def test_the_thread_goes_on_while_the_loop_is_busy() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        made.request(1, True)
        assert disk.begun.acquire(timeout=PATIENCE_S)
        made.request(2, True)
        disk.may_end.release(2)
        assert disk.begun.acquire(timeout=PATIENCE_S), (
            "the loop has had no turn, and the second one has begun"
        )
        assert told.kept == []
        await told.until(2)

    run(test)


def test_a_small_commit_alone_runs_on_the_loop_and_so_does_what_it_brings() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.may_end.release(2)
        disk.staged_bytes = 100
        told.on_kept = lambda number: made.request(number + 1, True) if number == 1 else None
        made.request(1, True)
        await told.until(2)
        assert told.kept == [1, 2]
        assert disk.commits[0] == ("MainThread", True)

    run(test)


def test_in_memory_nothing_leaves_the_loop() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.may_end.release(3)
        for number in (1, 2, 3):
            made.request(number, False)
        assert told.kept == [1, 2, 3]
        assert {name for name, _ in disk.commits} == {"MainThread"}

    run(test, in_memory=True)


@pytest.mark.parametrize("staged_bytes", [100, SMALL_BYTES + 1], ids=["on the loop", "in the thread"])
def test_a_failed_commit_is_told_and_tried_again_with_all_that_came(
    staged_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "RETRY_S", 0.01)

    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.failures = 2
        disk.staged_bytes = staged_bytes
        disk.may_end.release(100)
        made.request(1, False)
        await told.until(0, failures=1)
        made.request(2, True)
        await told.until(2)
        assert len(told.failed) == 2
        assert disk.commits[-1][1], "what was to be synced is"
        made.request(3, True)
        await told.until(3)

    run(test)


def test_an_error_in_one_effect_does_not_stop_further_commits() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.staged_bytes = 1
        disk.may_end.release(10)

        def fail(number: int) -> None:
            if number == 1:
                made.request(2, True)
                raise RuntimeError("an effect failed")

        told.on_kept = fail
        with pytest.raises(RuntimeError, match="an effect failed"):
            made.request(1, True)
        await told.until(2)
        made.request(3, True)
        await told.until(3)

    run(test)


def test_a_commit_that_failed_is_not_tried_again_after_the_end() -> None:
    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.failures = 1
        disk.may_end.release()
        made.request(1, True)
        await told.until(0, failures=1)
        await made.stop()
        assert made._retrying is not None
        assert made._retrying.cancelled()

    run(test)


def test_a_stop_finishes_the_commits_that_follow_from_others_and_tells_nothing_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An outcome that followed from the last commit was staged in a journal that was being closed."""
    monkeypatch.setattr(committer, "STOP_S", PATIENCE_S)

    async def test(disk: Disk, told: Told, made: CommitThread) -> None:
        disk.may_end.release(100)
        told.on_kept = lambda number: made.request(number + 1, True) if number < 3 else None
        made.request(1, True)
        await made.stop()
        assert told.kept == [1, 2, 3]
        made.request(4, True)
        assert len(disk.commits) == 3

    run(test)
