"""Programs that use every call of the client, and all of AMQP: they get what they expect, and report anything else."""

from __future__ import annotations

from typing import Any

import pytest

from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs import callers
from reknit.testing.fabric.programs.amqp import visitors as amqp_visitors
from reknit.testing.fabric.run import run

CALLS = FabricPlan(seed=1, nodes=2, run_s=4.0, publishers=0, durables=0, ephemerals=0, callers=2)
AMQP = FabricPlan(seed=1, nodes=1, run_s=4.0, publishers=0, durables=0, ephemerals=0, amqp_visitors=2)


def test_every_call_gives_what_a_caller_expects() -> None:
    assert run(1, plan=CALLS).problems == []


def test_another_reply_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(callers.REPLIES, "text", b"another text")
    assert any("a request to text got b'a text'" in problem for problem in run(1, plan=CALLS).problems)


def test_a_call_that_ends_without_a_fault_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any, session: Any) -> str:
        raise ConnectionResetError("for no reason")

    monkeypatch.setattr(callers.CallingProgram, "_send", fail)
    assert any("for no reason" in problem for problem in run(1, plan=CALLS).problems)


def test_amqp_says_what_a_visitor_expects() -> None:
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    assert run(1, plan=AMQP).problems == []


def test_another_condition_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    monkeypatch.setattr(amqp_visitors, "INVALID", "amqp:not-found")
    assert any("amqp:invalid-field" in problem for problem in run(1, plan=AMQP).problems)
