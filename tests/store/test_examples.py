from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["reknit.records"] + [
    f"reknit.store.{name}" for name in ("disk", "memory", "reader", "repair", "retention", "survey")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
