"""The examples in docstrings run, and in some modules every public docstring has one."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType

import pytest

import reknit

EXPLAINED = [
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
"""Every public docstring of these has an example."""


def modules(package: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The package and every module below it, each with its file. Nothing is imported."""
    yield package, folder / "__init__.py"
    for found in iter_modules([str(folder)]):
        name = f"{package}.{found.name}"
        if found.ispkg:
            yield from modules(name, folder / found.name)
        else:
            yield name, folder / f"{found.name}.py"


WITH_EXAMPLES = [
    name for name, file in modules("reknit", Path(reknit.__file__).parent) if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_search_finds_modules_at_every_depth() -> None:
    assert {*EXPLAINED, "reknit.store.disk", "reknit.protocol.dispatch.retry"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", EXPLAINED)
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
