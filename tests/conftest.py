"""Shared by all tests: reproducible examples, no settings from the shell, the order of files, no silent skips."""

import logging
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

# Examples are the same on every machine; `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile("replay", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "replay"))


@pytest.fixture(autouse=True)
def no_settings_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the `REKNIT_*` variables of whoever runs the tests."""
    for name in os.environ:
        if name.startswith("REKNIT_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands that a test runs in this process set levels, and log to a captured stderr that is closed after it."""
    root, ours = logging.getLogger(), logging.getLogger("reknit")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    for handler in [
        one for one in root.handlers if type(one) is logging.StreamHandler and one not in handlers
    ]:
        root.removeHandler(handler)
    for logger, level in zip((root, ours), levels, strict=True):
        logger.setLevel(level)


SESSION = "tests/spark"
LONGEST = (
    SESSION,
    "tests/spark/pipeline/test_cluster.py",
    "tests/spark/pipeline/test_declarative.py",
    "tests/cli/demo/test_command.py",
    "tests/spark/pipeline/test_node_kills.py",
    "tests/spark/runtime/test_connect.py",
    "tests/real/test_tunnels.py",
    "tests/docs/test_examples.py",
    "tests/node/replication/test_bridges.py",
    "tests/real/test_relay_kills.py",
)
"""They start first, so that no worker is left with one of them while the other worker is idle."""


def turn_of(nodeid: str) -> str:
    """The unit that one worker runs at a stretch: a file, or everything that shares one Spark session.

    Tests that start a Spark session of their own are listed above, and run alone.
    """
    file = nodeid.partition("::")[0]
    return SESSION if file.startswith(f"{SESSION}/") and file not in LONGEST else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest tests come first."""
    turns = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(turn_of(item.nodeid), len(turns)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`: turns go out in that order, and not those with the most tests first."""
    from xdist.scheduler import LoadFileScheduling

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = turn_of
    return scheduler


IS_CI = os.environ.get("CI") == "true"
OTHER_PLATFORMS = ("another allocator", "only Linux")
"""Reasons to skip that no installation helps with."""


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Continuous integration has every program that a test drives, so that a skip there is a failure."""
    if IS_CI and report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(OTHER_PLATFORMS):
            report.outcome = "failed"
            report.longrepr = f"skipped under CI=true, where nothing may be missing: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test's skip into a failure under CI."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a whole file's skip into a failure under CI."""
    report = yield
    refuse_skip(report)
    return report
