"""The table of all checks: by name, the sentence that each promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec

P = ParamSpec("P")

PROMISES: dict[str, str] = {}
"""By the name of a check, the sentence that it promises."""


def promise(sentence: str) -> Callable[[Callable[P, Iterator[str]]], Callable[P, Iterator[str]]]:
    """Enter a check into the table.

    >>> @promise("One is one.")
    ... def one_is_one(number: int) -> Iterator[str]:
    ...     if number != 1:
    ...         yield f"{number} is not 1"
    >>> PROMISES.pop("one_is_one"), list(one_is_one(2))
    ('One is one.', ['2 is not 1'])
    """

    def enter(check: Callable[P, Iterator[str]]) -> Callable[P, Iterator[str]]:
        PROMISES[check.__name__] = sentence
        return check

    return enter
