"""Zenoh and reknit with a link that is cut and a gateway that is killed, as processes: each event comes once."""

from __future__ import annotations

from pathlib import Path

import pytest

zenoh = pytest.importorskip("zenoh")

from tests.gateway.zenoh.disturbances import Course, into_reknit, into_zenoh  # noqa: E402
from tests.node.fabric import run  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.mark.parametrize("way", [into_reknit, into_zenoh])
def test_events_come_once_though_the_link_is_cut_and_the_gateway_killed(way: object, tmp_path: Path) -> None:
    async def test() -> None:
        course = Course()
        outcome = await way(course, tmp_path)  # type: ignore[operator]
        assert outcome.problem(course.events) == ""

    run(test)
