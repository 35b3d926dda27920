"""The examples in the docstrings of groups run."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "reknit.client.group.ledger",
    "reknit.protocol.multicast.ack_table",
    "reknit.protocol.multicast.departed_senders",
    "reknit.protocol.multicast.member",
    "reknit.protocol.multicast.settings",
    "reknit.wire.pieces",
    "reknit.protocol.multicast.gap_requests",
    "reknit.protocol.multicast.suspicion",
    "reknit.view",
    "reknit.protocol.multicast.window",
    "reknit.wire.bundle",
    "reknit.transport.udp",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
