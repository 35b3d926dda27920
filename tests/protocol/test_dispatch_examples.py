"""The examples in the dispatcher's docstrings run."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ("lanes", "leases", "pauses", "priorities", "retry", "rules")


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_dispatcher_run(name: str) -> None:
    result = doctest.testmod(import_module(f"reknit.protocol.dispatch.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
