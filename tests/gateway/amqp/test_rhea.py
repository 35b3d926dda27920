"""A JavaScript client (rhea) at the AMQP gateway: what proton's Python client can neither send nor show."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

from reknit.config import TopicSettings
from reknit.topic import Pattern
from tests.gateway.amqp.clients import WAIT_S, broker, config, url_of

FILES: Final = Path(__file__).parent / "js"
SCRIPT: Final = FILES / "rhea_client.js"
TOPICS = (TopicSettings(pattern=Pattern("orders/**"), distribution="balanced"),)


@pytest.fixture(scope="module")
def rhea() -> Path:
    """The package, as the lock file beside the script pins it; installed once beside this Python's own packages."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node or npm is not on this machine")
    lock = (FILES / "package-lock.json").read_bytes()
    home = Path(sys.prefix, f"amqp-js-{hashlib.sha256(lock).hexdigest()[:12]}")
    package = home / "node_modules" / "rhea"
    if not package.exists():
        with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(FILES / name, folder)
            words = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder]
            done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
            if done.returncode:
                pytest.skip(f"npm could not install rhea: {done.stderr[-300:]}")
            with contextlib.suppress(OSError):  # another process was quicker
                Path(folder).rename(home)
                Path(folder).mkdir()
    return package


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with broker(config(topics=TOPICS)) as node:
        yield urlsplit(url_of(node)).port or 0


def ask(rhea: Path, port: int, answer: str, **more: str) -> dict[str, Any]:
    """What the sender of one message hears when the receiver answers like this, and what the receiver's source is."""
    request = {"port": port, "address": "orders/new", "answer": answer} | more
    environment = os.environ | {"RHEA": str(rhea)}
    done = subprocess.run(
        ["node", str(SCRIPT), json.dumps(request)],
        capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("default", "state", "echoed"),
    [("", "modified", None), ("accepted", "accepted", []), ("released", "released", []),
     ("modified", "modified", [True, True])],
)  # fmt: skip
def test_message_settled_without_an_outcome_has_the_default_outcome_of_its_source(
    rhea: Path, port: int, default: str, state: str, echoed: list[bool] | None
) -> None:
    heard = ask(rhea, port, "settle", default_outcome=default)
    assert (heard["state"], heard["default_outcome"]) == (state, echoed)
    if state == "modified":
        assert heard["delivery_failed"] is True
        assert heard["undeliverable_here"] is bool(default)


def test_condition_of_an_application_arrives_unchanged(rhea: Path, port: int) -> None:
    heard = ask(rhea, port, "reject")
    assert (heard["condition"], heard["description"]) == ("app:bad", "no good")


def test_fields_and_annotations_of_modified_arrive_unchanged(rhea: Path, port: int) -> None:
    heard = ask(rhea, port, "modify")
    assert (heard["delivery_failed"], heard["undeliverable_here"]) == (False, True)
    assert heard["message_annotations"] == {"x-opt-why": "late"}


def test_filter_that_is_not_applied_is_not_echoed(rhea: Path, port: int) -> None:
    assert ask(rhea, port, "settle", filter="colour = 'green'")["filter"] is None


def test_address_may_be_a_url(rhea: Path, port: int) -> None:
    heard = ask(rhea, port, "settle", address="queue://orders/new", default_outcome="accepted")
    assert heard["state"] == "accepted"
