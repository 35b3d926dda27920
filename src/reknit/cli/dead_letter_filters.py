"""How dead letters are chosen on the command line: filters, times and rates, read from text."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from reknit.cli.output import fail

if TYPE_CHECKING:
    from reknit.dead_letter import Wanted

_AGE = re.compile(r"(\d+)\s*(s|m|h|d)")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"(\d+)\s*/\s*(s|min|h)")

FILTERS: Final[dict[str, Any]] = {
    "reason": Annotated[
        str, typer.Option("--reason", metavar="REASON", help="Only these, as expired or rejected.")
    ],
    "topic": Annotated[str, typer.Option("--topic", metavar="PATTERN", help="Only of topics that match.")],
    "code": Annotated[str, typer.Option("--code", metavar="CODE", help="Only with this google.rpc code.")],
    "subscriber": Annotated[
        str, typer.Option("--subscriber", metavar="NAME", help="Only of this subscriber.")
    ],
    "since": Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Only from then on: 15m, 2h, 7d ago, or an ISO time."),
    ],
    "until": Annotated[str, typer.Option("--until", metavar="TIME", help="Only from before then.")],
}
"""The options that choose dead letters."""


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """A command about dead letters: it gets its first argument, `wanted`, from the options that choose them."""

    @functools.wraps(command)
    def chosen(**values: Any) -> None:
        command(read_wanted(**{name: values.pop(name) for name in FILTERS}), **values)

    hints = get_type_hints(command, localns={"Wanted": object}, include_extras=True)
    kind = Parameter.KEYWORD_ONLY
    options = [Parameter(name, kind, default="", annotation=hint) for name, hint in FILTERS.items()]
    own = list(signature(command).parameters.values())[1:]
    options += [one.replace(kind=kind, annotation=hints[one.name]) for one in own]
    chosen.__annotations__ = {one.name: one.annotation for one in options}
    chosen.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return chosen


def read_wanted(reason: str, topic: str, code: str, subscriber: str, since: str, until: str) -> Wanted:
    """Which dead letters are meant, or the end with a line that says what can't be read."""
    from reknit.dead_letter import Wanted
    from reknit.outcome import Code as Codes
    from reknit.outcome import Reason as Reasons
    from reknit.topic import Pattern

    if reason and reason not in set(Reasons):
        fail(f"{reason!r} is no reason; there are {', '.join(Reasons)}")
    if code and code.upper() not in Codes.__members__:
        fail(f"{code!r} is no google.rpc code, such as UNAVAILABLE")
    if topic:
        Pattern(topic)
    return Wanted(reason, topic, code, subscriber, _moment(since), _moment(until))


def _moment(text: str) -> int:
    """A time in microseconds since 1970: so long ago, or as ISO says."""
    if not text:
        return 0
    import time
    from datetime import datetime

    if found := _AGE.fullmatch(text.strip()):
        return int((time.time() - int(found[1]) * _AGES[found[2]]) * 1e6)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e6)
    except ValueError:
        fail(f"{text!r} is no time; write 15m, 2h, 7d, or 2026-01-31T08:00")


def read_rate(text: str) -> float:
    """Events a second."""
    if text.strip() in ("", "0"):
        return 0.0
    found = _RATE.fullmatch(text.strip())
    if found is None:
        fail(f"{text!r} is no rate; write it as 1000/s, 30/min or 500/h")
    return int(found[1]) / {"s": 1, "min": 60, "h": 3600}[found[2]]
