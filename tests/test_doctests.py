from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest

MODULES = [
    "reknit.backoff",
    "reknit.address",
    "reknit.checkpoint",
    "reknit.errors",
    "reknit.dead_letter",
    "reknit.outcome",
    "reknit.seqset",
    "reknit.config.amqp",
    "reknit.config.anycast",
    "reknit.config.config",
    "reknit.config.description",
    "reknit.config.dispatch",
    "reknit.config.http",
    "reknit.config.journal",
    "reknit.config.limits",
    "reknit.config.links",
    "reknit.config.loader",
    "reknit.config.multicast",
    "reknit.config.node",
    "reknit.config.recovery",
    "reknit.config.retention",
    "reknit.config.rpc",
    "reknit.config.security",
    "reknit.config.settings",
    "reknit.config.toml",
    "reknit.config.topics",
    "reknit.config.transport",
    "reknit.attempts",
    "reknit.topic",
    "reknit.topic_index",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_public_docstring_has_an_example(name: str) -> None:
    bare = [label for label, doc in public_docs(importlib.import_module(name)) if ">>>" not in doc]
    assert bare == []


def public_docs(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The docstrings of what a module exports and has itself made, and of its classes' public members."""
    for label in module.__all__:
        thing = getattr(module, label)
        if getattr(thing, "__module__", "") != module.__name__:
            continue
        yield label, thing.__doc__ or ""
        for key, member in vars(thing).items():
            if not key.startswith("_") and isinstance(member, FunctionType | classmethod | property):
                yield f"{label}.{key}", member.__doc__ or ""
