"""A pytest plugin: runs tests in simulated fabrics, once for every seed.

Add `pytest_plugins = ["reknit.testing.fabric.plugin"]` to your `conftest.py`, and mark an async test:

    @pytest.mark.simulated(seeds=20)
    async def test_nothing_is_counted_twice():
        async with simulated_fabric(nodes=3, crash_rate=0.3) as fabric:
            ...

A failure names its seed. `pytest --fabric-seed 17` runs only that one.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from reknit.testing.fabric.user import run_simulated

SEEDS = 10
"""How many seeds a test runs with, if its mark does not say."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that replays one seed."""
    group = parser.getgroup("reknit", "simulated fabrics")
    group.addoption("--fabric-seed", type=int, default=None, help="run simulated tests with this seed alone")


def pytest_configure(config: pytest.Config) -> None:
    """The mark of simulated tests."""
    config.addinivalue_line(
        "markers", "simulated(seeds=10): run this async test in virtual time, once for every seed"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test, seed by seed."""
    mark = pyfuncitem.get_closest_marker("simulated")
    if mark is None:
        return None
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        raise pytest.UsageError(f"{pyfuncitem.nodeid} is marked as simulated and must be an async function")
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    chosen = pyfuncitem.config.getoption("--fabric-seed")
    seeds = [chosen] if chosen is not None else range(mark.kwargs.get("seeds", SEEDS))
    for seed in seeds:
        try:
            run_simulated(lambda: pyfuncitem.obj(**arguments), seed=seed)
        except BaseException as error:
            error.add_note(f"with seed {seed}; replay it: pytest '{pyfuncitem.nodeid}' --fabric-seed {seed}")
            raise
    return True
