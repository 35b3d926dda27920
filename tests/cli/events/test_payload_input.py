"""The payloads that `reknit pub` publishes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.cli.events import payload_input


def gathered(source: AsyncIterator[list[bytes]]) -> list[bytes]:
    async def gather() -> list[bytes]:
        return [payload async for payloads in source for payload in payloads]

    return asyncio.run(gather())


def fed(chunks: list[bytes], count: int | None = None) -> list[bytes]:
    """The lines that are read from a pipe to which chunks are written."""
    reading, writing = os.pipe()

    def write() -> None:
        try:
            for chunk in chunks:
                os.write(writing, chunk)
        except BrokenPipeError:
            pass
        finally:
            os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return gathered(payload_input.lines(reading, count))
    finally:
        thread.join()
        os.close(reading)


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"d\ne", b"\n\n", b"\r\n", b"\xff"]), max_size=8))
def test_lines_do_not_depend_on_how_the_input_is_chunked(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    wanted = whole.split(b"\n")
    assert fed(chunks) == (wanted if wanted[-1] else wanted[:-1])


def test_at_most_count_lines_are_read() -> None:
    assert fed([b"1\n2\n", b"3\n4\n"], count=3) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 2500])
def test_copies_are_as_many_as_asked_for(count: int) -> None:
    assert gathered(payload_input.copies(b"x", count)) == [b"x"] * count


@pytest.mark.parametrize("rate", [None, 1e6])
def test_pace_changes_nothing_but_time(rate: float | None) -> None:
    assert gathered(payload_input.paced(payload_input.copies(b"x", 1234), rate)) == [b"x"] * 1234
