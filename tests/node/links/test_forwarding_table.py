"""Where sources are published: remembered up to a limit, which is told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reknit.node.links import forwarding_table as wants
from reknit.node.links.forwarding_table import Wants


def make() -> tuple[Wants, dict[str, str]]:
    origins: dict[str, str] = {}
    notes = SimpleNamespace(value=SimpleNamespace(origins=origins), save_soon=lambda: None)
    links: Any = SimpleNamespace(notes=notes, routes=SimpleNamespace(name="here"))
    return Wants(links), origins


def test_past_the_limit_sources_are_not_remembered_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wants, "ORIGINS_MAX", 1)
    each, origins = make()
    for source in (b"one", b"two", b"three"):
        each.learn(source, "there")
    assert origins == {b"one".hex(): "there"}
    assert len(caplog.records) == 1


def test_source_that_is_known_moves_even_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wants, "ORIGINS_MAX", 1)
    each, origins = make()
    each.learn(b"one", "there")
    each.learn(b"one", "elsewhere")
    assert origins == {b"one".hex(): "elsewhere"}
