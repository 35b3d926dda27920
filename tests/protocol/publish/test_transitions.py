"""Every state of a publisher knows what to do with every input."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from reknit.protocol.machine import Connected, Disconnected
from reknit.protocol.publish.publisher import (
    TRANSITIONS,
    WITHOUT_EFFECT,
    FromNode,
    PublisherState,
    SourcePublisher,
)

INPUTS = (*get_args(FromNode), Connected, Disconnected)
CONNECTED = (PublisherState.DECLARING, PublisherState.FLOWING, PublisherState.HELD)


def test_only_a_second_connection_is_illegal() -> None:
    unknown = [
        pair
        for pair in product(PublisherState, INPUTS)
        if pair not in TRANSITIONS and pair not in WITHOUT_EFFECT
    ]
    assert unknown == [(state, Connected) for state in CONNECTED]


def test_no_pair_is_in_both_tables() -> None:
    assert not WITHOUT_EFFECT & TRANSITIONS.keys()


def test_illegal_input_raises_and_changes_nothing() -> None:
    publisher = SourcePublisher(b"s" * 16, "plant/temp")
    publisher.receive(Connected(), "node", 0.0)
    with pytest.raises(ValueError, match="flowing can't receive Connected"):
        publisher.receive(Connected(), "node", 0.0)
    assert publisher.state is PublisherState.FLOWING
    assert publisher.take_effects() == []
