"""Gateways in virtual time: the programs that use them get what they are promised, and a broken promise is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reknit.gateway.http.replay import JournalReplay
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.testing.fabric import gateways
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import run

WEB = FabricPlan(
    seed=8,
    run_s=3.0,
    publishers=1,
    durables=0,
    ephemerals=0,
    posters=2,
    tunnels=2,
    web_readers=2,
    reset_rate=1.5,
    program_crash_rate=0.5,
)
AMQP = FabricPlan(
    seed=3,
    run_s=3.0,
    publishers=1,
    durables=0,
    ephemerals=0,
    amqp_senders=3,
    amqp_receivers=4,
    release=0.5,
    reject=0.3,
    fail=0.3,
    leave_share=0.3,
    reset_rate=0.5,
)


@pytest.mark.parametrize("seed", range(4))
def test_tunnels_resume_through_resets_and_crashes(seed: int) -> None:
    plan = replace(WEB, seed=seed, crash_rate=0.4, socket_bytes=1 << 12, checkpoint_share=seed % 2)
    assert run(seed, plan=plan).problems == []


def test_an_event_that_a_tunnel_skips_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(
        self: JournalReplay, group: object, place: JournalPlace, edge: int
    ) -> tuple[bytes, JournalPlace]:
        return b"", JournalPlace(place.epoch, edge)

    monkeypatch.setattr(JournalReplay, "next", skip)
    assert any("tunnels_resume" in problem for problem in run(8, plan=WEB).problems)


def test_receivers_and_senders_of_amqp_hear_the_truth() -> None:
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    verdict = run(3, plan=AMQP)
    assert (verdict.problems, verdict.left_out) == ([], ())


def test_an_outcome_that_is_not_true_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    from reknit.gateway.amqp import deliveries
    from reknit.gateway.amqp.links import offers

    def accept(handles: list[Any], result: Any) -> None:
        deliveries.accept(handles)

    monkeypatch.setattr(offers, "settle", accept)
    assert any("outcomes_are_true" in problem for problem in run(3, plan=AMQP).problems)


def test_without_proton_the_rest_of_the_plan_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "is_available", lambda: False)
    verdict = run(3, plan=AMQP)
    assert (verdict.problems, verdict.left_out) == ([], ("AMQP: proton is not installed",))


def test_hostile_peers_change_nobodys_result() -> None:
    plan = replace(WEB, hostiles=3, put_rate=10.0, tunnels=1, web_readers=1, posters=1, amqp_receivers=1)
    assert run(8, plan=plan).problems == []


def test_an_internal_error_that_a_peer_causes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise KeyError(text)

    monkeypatch.setattr("reknit.gateway.http.pattern_tunnels.parse_form", fail)
    assert any("no_traceback_is_logged" in problem for problem in run(8, plan=WEB).problems)
