"""Every documented setting is read outside of `config`: none only looks as if it did something."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import reknit
from reknit.config import KNOWN
from reknit.config.settings import settings_of
from reknit.config.topics import TopicSettings

SOURCE = Path(reknit.__file__).parent


@pytest.fixture(scope="module")
def read() -> set[str]:
    """The names of all attributes that are read in modules outside of `config`."""
    modules = [path for path in SOURCE.rglob("*.py") if "config" not in path.relative_to(SOURCE).parts[:1]]
    return {
        node.attr
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_each_setting_is_read_somewhere(name: str, read: set[str]) -> None:
    assert name.partition(".")[2] in read, f"{name} is documented and changes nothing: use it, or remove it"


@pytest.mark.parametrize("key", [one.key for one in settings_of(TopicSettings)])
def test_each_setting_of_a_topic_is_read_somewhere(key: str, read: set[str]) -> None:
    assert key in read or key == "pattern", f"topics[].{key} is documented and changes nothing"
