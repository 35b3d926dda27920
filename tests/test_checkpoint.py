from __future__ import annotations

import binascii
import contextlib
import json
import pickle
import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reknit.checkpoint import SEQ_MAX, Checkpoint
from reknit.errors import InvalidCheckpoint

A, B = b"a" * 16, b"b" * 16

rows = st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(0, SEQ_MAX), max_size=8)
shared_rows = st.dictionaries(st.sampled_from([A, B, bytes(16)]), st.integers(0, 5))


def text_of(data: bytes) -> str:
    closed = data + binascii.crc32(data).to_bytes(4, "little")
    return "c1." + urlsafe_b64encode(closed).rstrip(b"=").decode()


@given(rows)
def test_text_round_trips_and_is_safe_in_a_url(seqs: dict[bytes, int]) -> None:
    checkpoint = Checkpoint(seqs)
    text = checkpoint.to_text()
    assert re.fullmatch(r"[A-Za-z0-9._-]+", text)
    assert Checkpoint.from_text(text) == checkpoint
    assert Checkpoint.from_text(f"  {text}\n") == checkpoint


@given(rows)
def test_json_and_pickle_round_trip(seqs: dict[bytes, int]) -> None:
    checkpoint = Checkpoint(seqs)
    assert Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json()))) == checkpoint
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint
    assert eval(repr(checkpoint)) == checkpoint


@given(rows)
def test_one_place_has_one_text(seqs: dict[bytes, int]) -> None:
    backwards = Checkpoint(dict(reversed(seqs.items())))
    assert backwards.to_text() == Checkpoint(seqs).to_text()
    assert hash(backwards) == hash(Checkpoint(seqs))


@given(shared_rows, shared_rows, shared_rows)
def test_merging_takes_the_higher_seq_in_any_order(
    one: dict[bytes, int], two: dict[bytes, int], three: dict[bytes, int]
) -> None:
    a, b, c = Checkpoint(one), Checkpoint(two), Checkpoint(three)
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(a) == a
    assert all(a.merge(b).get(source) == max(a.get(source), b.get(source)) for source in [A, B, bytes(16)])
    assert a.merge(b).includes(a)
    assert a.includes(b) == (a.merge(b) == a)


def test_advancing_never_goes_back_and_leaves_the_old_one() -> None:
    here = Checkpoint({A: 5})
    assert here.advance(A, 4) is here
    assert here.advance(B, 1).advance(A, 9) == Checkpoint({A: 9, B: 1})
    assert here == Checkpoint({A: 5})


def test_a_source_at_zero_was_never_seen() -> None:
    assert Checkpoint({A: 0}) == Checkpoint()
    assert len(Checkpoint({A: 0, B: 1})) == 1


def test_a_checkpoint_is_frozen() -> None:
    seqs = {A: 5}
    here = Checkpoint(seqs)
    seqs[A] = 6
    assert here.get(A) == 5
    with pytest.raises(AttributeError, match="frozen"):
        here._seqs = {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not the text of a checkpoint"),
        ("hello", "begins with 'c1.'"),
        ("c1.!!", "is not the text of a checkpoint"),
        ("c2.AAAAAA", "has version 2, and this side reads version 1; upgrade this side"),
        ("c1.", "is cut off or damaged"),
        ("c1.A", "is cut off or damaged"),
        ("c1.AAAAAB", "is damaged"),  # a bit that base64 does not use
        (text_of(A), "is damaged"),
        (text_of(A[:9]), "is damaged"),
        (text_of(A + b"\x00"), "is damaged"),
        (text_of(A + b"\x81\x00"), "is damaged"),
        (text_of(A + b"\xff" * 9 + b"\x02"), "is damaged"),
        (text_of(A + b"\xff" * 5000), "is damaged"),
        (text_of(B + b"\x01" + A + b"\x01"), "is damaged"),
        (text_of(A + b"\x01" + A + b"\x02"), "is damaged"),
    ],
)
def test_garbage_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=why):
        Checkpoint.from_text(text)


@given(rows, st.data())
def test_a_text_that_was_cut_off_is_noticed(seqs: dict[bytes, int], data: st.DataObject) -> None:
    text = Checkpoint(seqs).to_text()
    with pytest.raises(InvalidCheckpoint):
        Checkpoint.from_text(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.text(alphabet="c12.AB_-é\n", max_size=40))
@example("c1.AAAAAA")
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidCheckpoint):
        assert Checkpoint.from_text(text).to_text() == text.strip()


@pytest.mark.parametrize("seqs", [{b"short": 1}, {A: -1}, {A: SEQ_MAX + 1}, {A: 1.5}])
def test_rows_that_are_none_are_refused(seqs: dict[bytes, int]) -> None:
    with pytest.raises(InvalidCheckpoint):
        Checkpoint(seqs)


@pytest.mark.parametrize("found", [{"zz": 1}, {"00": 1}, {"00" * 16: "1"}, {"00" * 16: None}, {1: 1}, [1]])
def test_json_that_is_none_is_refused(found: dict[str, int]) -> None:
    with pytest.raises(InvalidCheckpoint):
        Checkpoint.from_json(found)
