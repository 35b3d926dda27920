"""Default outcomes in the frames of a connection."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reknit.gateway.amqp.codec.attach import AttachScanner, DefaultOutcome, outcome_of, with_defaults
from reknit.gateway.amqp.codec.conditions import Modified
from reknit.gateway.amqp.codec.encoding import Described, Symbol, decode, encode

HEADER = b"AMQP\x00\x01\x00\x00"
RELEASED = Described(0x26, [])


def frame(performative: Any, payload: bytes = b"") -> bytes:
    body = encode(performative) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def attach(name: str, *, is_receiver: bool = True, default: Any = None, source: bool = True) -> bytes:
    fields = ["orders/new", 0, Symbol("never"), 0, False, None, None, {Symbol("f"): "x"}, default]
    return frame(Described(0x12, [name, 0, is_receiver, 0, 0, Described(0x28, fields) if source else None]))


def transfer(payload: bytes) -> bytes:
    return frame(Described(0x14, [0, 0, b"tag"]), payload)


SAID = (
    HEADER
    + frame(Described(0x10, ["client"]))
    + attach("one", default=RELEASED)
    + transfer(attach("in a message", default=RELEASED))
    + b"\x00\x00\x00\x08\x02\x00\x00\x00"
    + attach("a sender", is_receiver=False, default=RELEASED)
    + attach("without", default=None)
    + attach("other", default=Described(0x27, [True, False, {Symbol("a"): 1}]))
)
HEARD = {"one": "released", "other": "modified"}


@given(cuts=st.lists(st.integers(0, len(SAID)), max_size=12))
def test_default_outcomes_are_found_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    scanner, at = AttachScanner(), 0
    found: dict[str, DefaultOutcome] = {}
    for cut in [*sorted(cuts), len(SAID)]:
        found |= dict(scanner.feed(SAID[at:cut]))
        at = cut
    assert {name: outcome.name for name, outcome in found.items()} == HEARD
    assert found["other"].modified == Modified(True, False, encode({Symbol("a"): 1}))


@given(
    parts=st.lists(
        st.binary(max_size=60) | st.just(SAID[:70]) | st.just(attach("x", default=RELEASED)), max_size=6
    )
)
def test_any_bytes_are_left_to_proton(parts: list[bytes]) -> None:
    scanner = AttachScanner()
    for part in parts:
        assert all(outcome.name in HEARD.values() for _, outcome in scanner.feed(part))


def test_another_outcome_does_not_hold() -> None:
    assert outcome_of(encode(Described(0x23, [0, 0]))) is None  # received is not an outcome
    assert outcome_of(encode(Described(0x25, [Described(0x1D, [Symbol("app:bad"), "x" * 300])]))) is None


def test_default_outcome_is_echoed_in_the_attach_of_its_link_alone() -> None:
    sent = HEADER + attach("one", is_receiver=False) + transfer(b"abc") + attach("two", is_receiver=False)
    defaults = {"one": DefaultOutcome(encode(RELEASED), "released")}
    echoed = with_defaults(sent, lambda name: defaults.get(name))
    before, first, rest = echoed[:8], *_split(echoed[8:])
    assert before == HEADER
    assert decode(first[8:])[0].value[5].value[8] == RELEASED
    assert rest == transfer(b"abc") + attach("two", is_receiver=False)


def test_refused_link_echoes_nothing() -> None:
    sent = attach("one", is_receiver=False, source=False)
    assert with_defaults(sent, lambda name: DefaultOutcome(encode(RELEASED), "released")) == sent


def _split(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    return data[:size], data[size:]
