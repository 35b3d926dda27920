"""The options that select dead letters, shared by several commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer


class FilterOptions(NamedTuple):
    """The dead letters that match every option that is given, as text."""

    reason: Annotated[
        str, typer.Option("--reason", metavar="REASON", help="Only this reason, such as expired or rejected.")
    ] = ""
    topic: Annotated[
        str, typer.Option("--topic", metavar="PATTERN", help="Only topics that match the pattern.")
    ] = ""
    code: Annotated[str, typer.Option("--code", metavar="CODE", help="Only this google.rpc code.")] = ""
    subscriber: Annotated[str, typer.Option("--subscriber", metavar="NAME", help="Only this subscriber.")] = (
        ""
    )
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Only from this time on: 15m, 2h or 7d ago, or an ISO time."
        ),
    ] = ""
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only before this time.")] = ""


def with_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `FilterOptions`; it gets the filter as its first argument."""

    @functools.wraps(command)
    def filtered(**values: Any) -> None:
        chosen = FilterOptions(**{name: values.pop(name) for name in FilterOptions._fields})
        command(chosen, **values)

    kind = Parameter.KEYWORD_ONLY
    shared = get_type_hints(FilterOptions, include_extras=True)
    options = [Parameter(name, kind, default="", annotation=hint) for name, hint in shared.items()]
    hints = get_type_hints(command, include_extras=True)
    own = list(signature(command).parameters.values())[1:]
    options += [one.replace(kind=kind, annotation=hints[one.name]) for one in own]
    filtered.__annotations__ = {one.name: one.annotation for one in options}
    filtered.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return filtered
