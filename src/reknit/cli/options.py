"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Form(StrEnum):
    """How an event is written, a line each."""

    CLOUDEVENTS = "cloudevents"


NodeUrl = Annotated[
    str,
    typer.Option(
        "--node",
        metavar="URL",
        envvar="REKNIT_NODE",
        help="The node to talk to.  [default: where the configuration says that one listens]",
    ),
]
AsForm = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="cloudevents",
        help="An event is a CloudEvent in JSON, with uProtocol's attributes.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
