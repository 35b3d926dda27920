"""The examples in the docstrings of groups run."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "reknit.client.group_ledger",
    "reknit.protocol.ack_table",
    "reknit.protocol.ends",
    "reknit.protocol.group_member",
    "reknit.protocol.group_settings",
    "reknit.protocol.pieces",
    "reknit.protocol.receiver",
    "reknit.protocol.suspicion",
    "reknit.protocol.view",
    "reknit.protocol.window",
    "reknit.transport.bundle",
    "reknit.transport.udp",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
