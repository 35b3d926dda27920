"""Inputs are saved, replayed and made small."""

from __future__ import annotations

from pathlib import Path

from reknit.testing.fuzz.findings import signature
from reknit.testing.fuzz.inputs import END, SAY, FuzzInput, Step, load, shrunk


def made(*data: bytes) -> FuzzInput:
    return FuzzInput("tcp", 1, 2, (*(Step(SAY, one) for one in data), Step(END)))


def test_a_saved_input_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    found = made(b"\x00\xff", b"x" * 1000)
    assert load(found.save(tmp_path)) == found


def test_shrinking_keeps_the_steps_that_fail_together() -> None:
    found = made(*(b"%d" % number for number in range(40)))
    small = shrunk(found, lambda one: {b"7", b"31"} <= {step.data for step in one.steps})
    assert [step.data for step in small.steps] == [b"7", b"31"]


def test_shrinking_shortens_data() -> None:
    small = shrunk(made(b"a" * 500 + b"!" + b"b" * 500), lambda one: any(b"!" in s.data for s in one.steps))
    assert [len(step.data) <= 16 for step in small.steps] == [True]


def test_one_fault_has_one_signature() -> None:
    log = """12:00 error internal error {}: Want for x failed
Traceback (most recent call last):
  File "/somewhere/src/reknit/node/peers/reception.py", line {}, in receive
    self.take(item, peer, now)
  File "/somewhere/lib/python3.11/other.py", line 7, in other
ValueError: [{}, 1) is not a range
12:01 warning closing the connection
"""
    assert (
        signature(log.format("a", 1, 2))
        == signature(log.format("b", 3, 4))
        == "ValueError in receive (reknit/node/peers/reception.py)"
    )
