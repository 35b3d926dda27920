"""The demo's fabric waits for what it judges."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.request import urlopen

import pytest

from reknit.cli.demo.fabric import DemoFabric

pytestmark = pytest.mark.real


class Silent:
    """Shows nothing."""

    def tell(self, text: str) -> None:
        pass

    def show(self) -> None:
        pass


def test_a_subscriber_that_starts_after_the_last_event_is_waited_for(tmp_path: Path) -> None:
    with DemoFabric(tmp_path, 200, seed=1) as fabric:
        late = fabric.subscribers[1]
        published = shlex.quote(str(tmp_path / "published"))
        late.command = [
            "sh",
            "-c",
            f"until [ -e {published} ]; do sleep 0.1; done; exec {shlex.join(late.command)}",
        ]

        class Release(Silent):
            def tell(self, text: str) -> None:
                if text == "every event is published":
                    (tmp_path / "published").touch()

        fabric.start(Release())
        fabric.settle(Release())
        assert fabric.result().problems == []


def test_the_fabric_goes_on_with_faults_and_a_console_while_somebody_watches(tmp_path: Path) -> None:
    with DemoFabric(tmp_path, 200, seed=1) as fabric:
        fabric.start(Silent())
        fabric.settle(Silent())
        before = fabric.published
        fabric.go_on(Silent(), pause_s=0.1, kills_max=3)
        assert fabric.kills
        while fabric.published <= before:
            fabric._sleep(0.1, Silent())
        while not is_alive(fabric.console):
            fabric._sleep(0.1, Silent())  # a node that was killed opens its other doors first


def is_alive(url: str) -> bool:
    try:
        with urlopen(f"{url}healthz") as answer:
            return bool(answer.read() == b"alive\n")
    except OSError:
        return False
