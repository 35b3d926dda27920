"""The numbers in a request for a tunnel or a route. Each is valid, or the request is refused with 400."""

from __future__ import annotations

import math

from reknit.fields import NUMBER_MAX, SECONDS_MAX
from reknit.gateway.http.requests import Form, first

__all__ = ["age_of", "count_of", "whole_number"]


def age_of(form: Form) -> float | None:
    """`do_max_age`: seconds, or infinity; None if it is not given. Raises `ValueError`.

    >>> age_of([("do_max_age", "60")]), age_of([("do_max_age", "infinity")]), age_of([])
    (60.0, inf, None)
    """
    text = first(form, "do_max_age")
    if not text:
        return None
    try:
        age_s = float(text)
    except ValueError:
        age_s = math.nan
    if not age_s >= 0:
        raise ValueError(f"do_max_age must be a number of seconds from 0 on, or infinity, not {text[:80]!r}")
    return age_s if age_s <= SECONDS_MAX else math.inf


def count_of(form: Form) -> int | None:
    """`do_max_n`: how many events; None if it is not given. Raises `ValueError`.

    >>> count_of([("do_max_n", "3")]), count_of([])
    (3, None)
    """
    text = first(form, "do_max_n")
    if not text:
        return None
    count = whole_number(text)
    if count is None:
        raise ValueError(f"do_max_n must be a whole number from 0 on, not {text[:80]!r}")
    return count


def whole_number(text: str) -> int | None:
    """A whole number in plain digits, or None.

    >>> whole_number("12"), whole_number("-1"), whole_number("1_0"), whole_number("9" * 30)
    (12, None, None, None)
    """
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX))):
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None
