"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

NodeUrl = Annotated[
    str,
    typer.Option(
        "--node",
        metavar="URL",
        envvar="REKNIT_NODE",
        help="The node to talk to.  [default: where the configuration says that one listens]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
