"""Where sources are published: remembered up to a limit, which is told of."""

from __future__ import annotations

import pytest

from reknit.node.links import forwarding_table
from reknit.node.links.forwarding_table import Origins


def make() -> tuple[Origins, dict[str, str]]:
    known: dict[str, str] = {}
    return Origins(known, "here", lambda: None), known


def test_past_the_limit_sources_are_not_remembered_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarding_table, "ORIGINS_MAX", 1)
    each, origins = make()
    for source in (b"one", b"two", b"three"):
        each.learn(source, "there")
    assert origins == {b"one".hex(): "there"}
    assert len(caplog.records) == 1


def test_source_that_is_known_moves_even_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding_table, "ORIGINS_MAX", 1)
    each, origins = make()
    each.learn(b"one", "there")
    each.learn(b"one", "elsewhere")
    assert origins == {b"one".hex(): "elsewhere"}
