"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting; may be repeated."),
]
