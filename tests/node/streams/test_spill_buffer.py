"""The spill buffer: it holds all that was put there, a bounded part of it in memory, and leaves no file behind."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.node.streams.spill_buffer import SpillBuffer

S = b"s" * 16


@settings(max_examples=200, deadline=None)
@given(
    ops=st.lists(
        st.tuples(st.sampled_from(["put", "drop"]), st.integers(0, 1), st.integers(1, 50)), max_size=80
    ),
    cap=st.integers(0, 300),
)
def test_a_buffer_holds_what_was_put_there_and_no_more_than_the_cap_of_it_in_memory(
    ops: list[tuple[str, int, int]], cap: int
) -> None:
    buffer = SpillBuffer(cap)
    model = {b"a": b"", b"b": b""}
    dropped = {b"a": 0, b"b": 0}
    rng = Random(1)
    try:
        for op, which, size in ops:
            source = (b"a", b"b")[which]
            if op == "put":
                data = rng.randbytes(size)
                buffer.put(source, data)
                model[source] += data
            elif model[source]:
                dropped[source] = min(len(model[source]), dropped[source] + size)
                buffer.drop(source, dropped[source])
            for one, whole in model.items():
                assert buffer.read(one, dropped[one], len(whole)) == whole[dropped[one] :]
            left = sum(len(model[one]) - dropped[one] for one in model)
            assert buffer.held_bytes <= cap
            assert buffer.held_bytes + buffer.spilled_bytes == left
    finally:
        buffer.close()


def test_no_file_is_left_behind(tmp_path: Path) -> None:
    buffer = SpillBuffer(0, tmp_path)
    buffer.put(S, b"abc")
    assert buffer.spilled_bytes == 3
    assert list(tmp_path.iterdir()) == [], "it has no name"
    buffer.close()
