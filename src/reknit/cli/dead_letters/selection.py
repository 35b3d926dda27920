"""Reads the filters, times and rates that select dead letters. Each ends the command with one line if it is invalid."""

from __future__ import annotations

import re
import time
from datetime import datetime

from reknit.cli.dead_letters.filters import FilterOptions
from reknit.cli.output import fail
from reknit.dead_letter import DeadLetterFilter
from reknit.outcome import Code, Reason
from reknit.topic import Pattern

_AGE = re.compile(r"(\d+)\s*(s|m|h|d)")
_AGES_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"(\d+)\s*/\s*(s|min|h)")
_RATES_S = {"s": 1, "min": 60, "h": 3600}


def selection(chosen: FilterOptions) -> DeadLetterFilter:
    """The filter as the node understands it."""
    if chosen.reason and chosen.reason not in set(Reason):
        fail(f"invalid reason {chosen.reason!r}: use one of {', '.join(Reason)}")
    if chosen.code and chosen.code.upper() not in Code.__members__:
        fail(f"invalid code {chosen.code!r}: use a google.rpc code, such as UNAVAILABLE")
    if chosen.topic:
        Pattern(chosen.topic)
    since_us, until_us = time_us(chosen.since), time_us(chosen.until)
    return DeadLetterFilter(chosen.reason, chosen.topic, chosen.code, chosen.subscriber, since_us, until_us)


def time_us(text: str) -> int:
    """A time in microseconds since 1970, from an age or an ISO time."""
    if not text:
        return 0
    if found := _AGE.fullmatch(text.strip()):
        return int((time.time() - int(found[1]) * _AGES_S[found[2]]) * 1e6)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e6)
    except ValueError:
        fail(f"invalid time {text!r}: write 15m, 2h, 7d, or an ISO time such as 2026-01-31T08:00")


def events_per_second(text: str) -> float:
    """A rate such as 30/min in events per second; 0 is no limit."""
    if text.strip() in ("", "0"):
        return 0.0
    found = _RATE.fullmatch(text.strip())
    if found is None:
        fail(f"invalid rate {text!r}: write it as 1000/s, 30/min or 500/h")
    return int(found[1]) / _RATES_S[found[2]]
