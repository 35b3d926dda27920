"""Gateways in virtual time: the programs that use them get what they are promised, and a broken promise is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.gateway.http.replay import JournalReplay
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.testing.fabric.plan import FabricPlan
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
