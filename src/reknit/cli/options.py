"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer


class Form(StrEnum):
    """How an event is written."""

    CLOUDEVENTS = "cloudevents"


NodeUrl = Annotated[
    str,
    typer.Option(
        "--node",
        metavar="URL",
        envvar="REKNIT_NODE",
        help="The node's address.  [default: node.listen of the configuration]",
    ),
]
AsForm = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="cloudevents",
        help="Read or print each event as a CloudEvent in JSON, with uProtocol's attributes.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The settings file.  [default: ./reknit.toml if it exists]"
    ),
]
SetSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="A setting; may be repeated.",
        autocompletion=lambda incomplete: complete_settings(incomplete),
    ),
]


# -- completion


def complete_settings(incomplete: str) -> list[str]:
    """The settings that begin so, as `--set` takes them."""
    from reknit.config import KNOWN

    return [f"{name}=" for name in sorted(KNOWN) if name.startswith(incomplete)]


def complete_topics(incomplete: str) -> list[str]:
    """The topics of the node that begin so; none if it does not answer."""
    return _names(incomplete, "topics", "topic")


def complete_subscribers(incomplete: str) -> list[str]:
    """The durable subscribers of the node that begin so; none if it does not answer."""
    return _names(incomplete, "status", "name")


def _names(incomplete: str, what: str, field: str) -> list[str]:
    """Names from the node of $REKNIT_NODE or the configuration, for a shell that waits for them."""
    import asyncio
    import os

    from reknit.cli.running import node_url
    from reknit.client.session import connect
    from reknit.config import load

    async def asked() -> list[dict[str, Any]]:
        url = node_url(os.environ.get("REKNIT_NODE", ""))
        async with connect(url, config=load(), wait_s=0.3) as session:
            body = await session.ask(what)
        rows: list[dict[str, Any]] = body["subscribers"] if what == "status" else body
        return rows

    try:
        names = {str(row[field]) for row in asyncio.run(asked())}
    except Exception:  # a shell shows nothing rather than an error
        return []
    return sorted(name for name in names if name.startswith(incomplete))


# -- groups of options


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter of a command that is a `NamedTuple` by an option for each of its fields.

    The command gets the tuple. So options that several commands share are declared once.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hasattr(hint, "_fields")}

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in group._fields})
        command(**values)

    options = list(_options(signature(command), hints))
    flat.__annotations__ = {one.name: one.annotation for one in options}
    flat.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return flat


def _options(declared: Signature, hints: dict[str, Any]) -> Iterator[Parameter]:
    for one in declared.parameters.values():
        group = hints[one.name]
        if not hasattr(group, "_fields"):
            yield one.replace(kind=Parameter.KEYWORD_ONLY, annotation=group)
            continue
        for name, hint in get_type_hints(group, include_extras=True).items():
            default = group._field_defaults.get(name, Parameter.empty)
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
