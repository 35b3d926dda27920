"""The inbox of a group member: its reader sees no hole, and what it does not read is counted."""

from __future__ import annotations

import asyncio

import pytest

from reknit.batch import Batch
from reknit.client.group.inbox import GroupInbox

SOURCE = b"s" * 16


def batch(first: int, count: int) -> Batch:
    return Batch.build(SOURCE, "group/robots", first, [b"x"] * count, time_us=1)


class Counted:
    """An inbox, and what it said about the events."""

    def __init__(self) -> None:
        self.acked = 0
        self.unread: list[tuple[int, int]] = []
        self.inbox = GroupInbox(
            self._read, lambda source, start, stop: self.unread.append((start, stop)), None
        )

    def _read(self, source: bytes, seq: int) -> None:
        self.acked = seq


@pytest.mark.parametrize("read", [1, 3, 9, 10, 11])
def test_a_reader_is_ended_after_any_event_and_the_rest_is_unread(read: int) -> None:
    async def main() -> None:
        counted = Counted()
        counted.inbox.add(batch(1, 10))
        counted.inbox.add(batch(11, 5))
        got: list[int] = []
        async for event in counted.inbox.events():
            got.append(event.seq)
            if len(got) == read:
                counted.inbox.end()
        assert got == list(range(1, read + 1))
        assert [seq for start, stop in counted.unread for seq in range(start, stop)] == list(
            range(read + 1, 16)
        )
        assert counted.acked == 15

    asyncio.run(main())


def test_a_reader_that_waits_is_ended() -> None:
    async def main() -> None:
        counted = Counted()
        reading = asyncio.create_task(counted.inbox.take())
        await asyncio.sleep(0)
        counted.inbox.end()
        assert await reading == []
        assert counted.unread == []

    asyncio.run(main())


def test_a_reader_of_a_group_that_was_left_gets_everything_first() -> None:
    async def main() -> None:
        counted = Counted()
        counted.inbox.add(batch(1, 10))
        counted.inbox.close()
        assert [event.seq async for event in counted.inbox.events()] == list(range(1, 11))
        assert counted.unread == []

    asyncio.run(main())
