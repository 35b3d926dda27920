"""How valid messages are changed: fields get values of other kinds and sizes, parts are cut, doubled and reordered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from reknit.testing.fabric.programs.attacks import ABSURD, mutate_bytes

T = TypeVar("T")

NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    255,
    65_535,
    1 << 31,
    (1 << 32) - 1,
    1 << 53,
    (1 << 63) - 1,
    (1 << 64) - 1,
    -(1 << 63),
)
FLOATS: Final = (0.0, -0.0, -1.0, 1e-300, 1e10, 1.7e308, math.inf, -math.inf, math.nan)
TEXTS: Final = (
    "",
    "\0",
    "evil",
    "evil/**",
    "evil/*",
    "*/evil",
    "//",
    "$*",
    "é\u202e",
    "\ud7ff",
    "x" * 70_000,
    "9" * 400,
)
LISTED_MAX: Final = 3_000
"""How often an element of a list is repeated at most."""


def mutate_value(rng: Random, value: Any) -> Any:
    """Another value in the place of this one. Lists and maps mostly change in one of their parts."""
    if isinstance(value, list | tuple) and value and rng.random() < 0.85:
        return _mutate_list(rng, list(value))
    if isinstance(value, dict) and value and rng.random() < 0.85:
        return _mutate_map(rng, dict(value))
    if rng.random() < 0.15:
        return rng.choice(ABSURD)
    return _near(rng, value)


def _mutate_list(rng: Random, values: list[Any]) -> list[Any]:
    at = rng.randrange(len(values))
    match rng.randrange(12):
        case 0:
            del values[at]
        case 1:
            values.insert(at, rng.choice(ABSURD))
        case 2:
            values[at:at] = [values[at]] * rng.choice((1, 1, 1, 2, 100, LISTED_MAX))
        case 3:
            other = rng.randrange(len(values))
            values[at], values[other] = values[other], values[at]
        case _:
            values[at] = mutate_value(rng, values[at])
    return values


def _mutate_map(rng: Random, values: dict[Any, Any]) -> dict[Any, Any]:
    key = rng.choice(list(values))
    match rng.randrange(10):
        case 0:
            del values[key]
        case 1:
            values[rng.choice(("", "x", 7, "\0"))] = rng.choice(ABSURD)
        case 2:
            values[mutate_text(rng, str(key))] = values.pop(key)
        case _:
            values[key] = mutate_value(rng, values[key])
    return values


def _near(rng: Random, value: Any) -> Any:
    """A value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, value * 2, rng.randrange(9), rng.choice(NUMBERS)))
        case float():
            return rng.choice((value / 2, value * 1e3, rng.choice(FLOATS)))
        case str():
            return mutate_text(rng, value)
        case bytes():
            return (
                mutate_bytes(rng, value) if value and rng.random() < 0.7 else rng.randbytes(rng.randrange(40))
            )
        case _:
            return rng.choice(ABSURD)


def mutate_text(rng: Random, text: str) -> str:
    """A text that is like this one, or like none."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(7):
        case 0:
            return rng.choice(TEXTS)
        case 1:
            return text[:at]
        case 2:
            return (
                text[:at]
                + rng.choice(("/", "//", "*", "\0", "%", "é", " ", "\r\n", ";", "&", "=", "-"))
                + text[at:]
            )
        case 3:
            return text[:at] + text[at + 1 :]
        case 4:
            return text + text
        case 5:
            return str(rng.choice(NUMBERS + FLOATS))
        case _:
            return text.swapcase()


def mutate_order(
    rng: Random, parts: list[T], others: Sequence[T], mutate: Callable[[Random, T], T]
) -> list[T]:
    """Drop, double, swap, replace, cut off or mutate some of the parts."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        if not parts:
            return parts
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(16):
            case 0:
                del parts[at]
            case 1:
                parts.insert(other, parts[at])
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at:at] = [parts[at]] * rng.choice((1, 2, 5, 40))
            case 4:
                del parts[at:]
            case 5 if others:
                parts.insert(at, rng.choice(others))
            case 6 if others:
                parts[at] = rng.choice(others)
            case 7 if rng.random() < 0.3:
                rng.shuffle(parts)
            case _:
                parts[at] = mutate(rng, parts[at])
    return parts


def cut(rng: Random, data: bytes) -> list[bytes]:
    """The same bytes in a few pieces, as a network may deliver them."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 4)))
    starts = [0, *places]
    return [
        piece for start, stop in zip(starts, [*places, len(data)], strict=True) if (piece := data[start:stop])
    ]
