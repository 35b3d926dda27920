"""Changes the plan of a failing simulation until little is left of it, and it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from reknit.testing.faults import FaultPlan

RUNS_MAX: Final = 400
"""How many plans are tried at most."""
HALVED: Final = (
    "run_s",
    "put_rate",
    "publishers",
    "durables",
    "ephemerals",
    "burst_max",
    "payload_bytes_max",
)
"""Fields that are halved, after those that can be set to their defaults."""

_QUIET: Final = FaultPlan(seed=0)


def shrunk(plan: FaultPlan, fails: Callable[[FaultPlan], bool], runs_max: int = RUNS_MAX) -> FaultPlan:
    """A plan that fails, with as few faults and programs as were found.

    >>> plan = FaultPlan(seed=1, cut_rate=0.5, node_crash_rate=0.5, publishers=3)
    >>> changed(shrunk(plan, lambda plan: plan.cut_rate > 0), plan)["node_crash_rate"]
    0.0
    """
    runs = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for change in _changes(plan):
            smaller = replace(plan, **change)
            if smaller == plan:
                continue
            if runs >= runs_max:
                return plan
            runs += 1
            if fails(smaller):
                plan, is_smaller = smaller, True
    return plan


def _changes(plan: FaultPlan) -> Iterator[dict[str, Any]]:
    for name in _names():
        if name not in HALVED:
            yield {name: getattr(_QUIET, name)}
    for name in HALVED:
        value = getattr(plan, name)
        low = 0 if name in ("durables", "ephemerals") else 1
        yield {name: low if isinstance(value, int) else value / 2}
        yield {name: max(low, value // 2) if isinstance(value, int) else value * 0.75}


def changed(plan: FaultPlan, original: FaultPlan) -> dict[str, Any]:
    """The fields in which a plan differs from another."""
    return {name: getattr(plan, name) for name in _names() if getattr(plan, name) != getattr(original, name)}


def with_settings(plan: FaultPlan, settings: Sequence[str]) -> FaultPlan:
    """A plan with fields set by texts like `cut_rate=0`. Raises `ValueError`.

    >>> with_settings(FaultPlan(seed=1), ["publishers=1", "is_ordered=True"]).is_ordered
    True
    """
    values: dict[str, Any] = {}
    for text in settings:
        name, _, value = text.partition("=")
        if name not in _names():
            raise ValueError(f"Invalid field {name!r} of a plan: use one of {', '.join(_names())}")
        values[name] = _read(name, value)
    return replace(plan, **values)


def _read(name: str, value: str) -> bool | int | float | str:
    kind = type(getattr(_QUIET, name))
    try:
        if kind is bool:
            return {"True": True, "False": False}[value]
        return kind(value)  # type: ignore[no-any-return]
    except (KeyError, ValueError):
        raise ValueError(f"Invalid value {value!r} of {name}: it has to be of type {kind.__name__}") from None


def _names() -> list[str]:
    return [field.name for field in fields(FaultPlan) if field.name != "seed"]
