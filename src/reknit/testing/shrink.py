"""Changes the plan of a failing simulation until little is left of it, and it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

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
    "members",
    "seconds",
    "sends_per_s",
    "events_max",
)
"""Fields that are halved, after those that can be set to their defaults."""

P = TypeVar("P", bound=Any)
"""A plan: a frozen dataclass with a seed, whose other fields have defaults that mean few programs and no faults."""


def shrunk(plan: P, fails: Callable[[P], bool], runs_max: int = RUNS_MAX) -> P:
    """A plan that fails, with as few faults and programs as were found.

    >>> from reknit.testing.faults import FaultPlan
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


def _changes(plan: Any) -> Iterator[dict[str, Any]]:
    quiet, names = type(plan)(seed=0), _names(plan)
    for name in names:
        if name not in HALVED:
            yield {name: getattr(quiet, name)}
    for name in (one for one in HALVED if one in names):
        value = getattr(plan, name)
        low = 0 if name in ("durables", "ephemerals") else 1
        yield {name: low if isinstance(value, int) else value / 2}
        yield {name: max(low, value // 2) if isinstance(value, int) else value * 0.75}


def replay_settings(plan: P, original: P) -> str:
    """The settings that make this plan of the one that its seed gives, for `make sim SET="…"`."""
    return " ".join(f"{name}={value}" for name, value in changed(plan, original).items())


def changed(plan: P, original: P) -> dict[str, Any]:
    """The fields in which a plan differs from another."""
    return {
        name: getattr(plan, name) for name in _names(plan) if getattr(plan, name) != getattr(original, name)
    }


def with_settings(plan: P, settings: Sequence[str]) -> P:
    """A plan with fields set by texts like `cut_rate=0`. Raises `ValueError`.

    >>> from reknit.testing.faults import FaultPlan
    >>> with_settings(FaultPlan(seed=1), ["publishers=1", "is_ordered=True"]).is_ordered
    True
    """
    values: dict[str, Any] = {}
    for text in settings:
        name, _, value = text.partition("=")
        if name not in _names(plan):
            raise ValueError(f"Invalid field {name!r} of a plan: use one of {', '.join(_names(plan))}")
        values[name] = _read(plan, name, value)
    return replace(plan, **values)


def _read(plan: Any, name: str, value: str) -> bool | int | float | str:
    kind = type(getattr(plan, name))
    try:
        if kind is bool:
            return {"True": True, "False": False}[value]
        return kind(value)  # type: ignore[no-any-return]
    except (KeyError, ValueError):
        raise ValueError(f"Invalid value {value!r} of {name}: it has to be of type {kind.__name__}") from None


def _names(plan: Any) -> list[str]:
    return [field.name for field in fields(plan) if field.name != "seed"]
