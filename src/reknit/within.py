"""Whether all topics of one pattern are topics of another."""

from __future__ import annotations

from collections.abc import Sequence

from reknit.topic import Pattern


def is_within(inner: Pattern, outer: Pattern) -> bool:
    """Whether whatever matches `inner` also matches `outer`.

    >>> is_within(Pattern("orders/*"), Pattern("orders/**"))
    True
    >>> is_within(Pattern("**"), Pattern("orders/**"))
    False
    """
    return _is_within(tuple(inner.text.split("/")), tuple(outer.text.split("/")))


def _is_within(inner: Sequence[str], outer: Sequence[str]) -> bool:
    if not outer:
        return not inner
    if outer[0] == "**":
        if _is_within(inner, outer[1:]):
            return True
        return bool(inner) and not inner[0].startswith("@") and _is_within(inner[1:], outer)
    return bool(inner) and _covers(outer[0], inner[0]) and _is_within(inner[1:], outer[1:])


def _covers(outer: str, inner: str) -> bool:
    """One segment of each; `**` is only within `**`."""
    if outer == inner:
        return True
    if inner == "**" or inner.startswith("@"):
        return False
    if outer == "*":
        return True
    return "$*" in outer and "*" not in inner and Pattern(outer).matches(inner)
