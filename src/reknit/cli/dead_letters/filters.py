"""The options that select dead letters, shared by several commands."""

from __future__ import annotations

from typing import Annotated, NamedTuple

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
