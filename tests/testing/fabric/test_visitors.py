"""Visitors of the HTTP gateway: they get the answers that they expect, and report any other."""

from __future__ import annotations

import pytest

from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.web import visitors
from reknit.testing.fabric.programs.web.visited_pages import VisitedPage
from reknit.testing.fabric.run import run

PLAN = FabricPlan(
    seed=1, nodes=1, run_s=4.0, publishers=0, durables=0, ephemerals=0, visitors=2, put_rate=4.0
)


def test_every_page_answers_as_a_visitor_expects() -> None:
    assert run(1, plan=PLAN).problems == []


def test_another_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "PAGES", (VisitedPage("GET", "/", 404),) * visitors.PAGES_AT_ONCE)
    assert any("GET /" in problem and "200" in problem for problem in run(1, plan=PLAN).problems)


def test_an_event_that_comes_too_late_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reknit.gateway.http.replay.is_expired", lambda entry: False)
    assert any("brought" in problem and "gone" in problem for problem in run(1, plan=PLAN).problems)
