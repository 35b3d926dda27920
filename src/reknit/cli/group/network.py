"""The options for a group's network, shared by several commands."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer


class NetworkOptions(NamedTuple):
    """How the members of a group reach each other."""

    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The multicast address; empty to use seeds only.")
    ] = "239.75.78.84:7475"
    interface: Annotated[
        str, typer.Option(metavar="IP", help="The address of the network interface to use.")
    ] = "127.0.0.1"
    seed: Annotated[
        list[str] | None,
        typer.Option("--seed", metavar="HOST:PORT", help="A member's address; may be repeated."),
    ] = None
    tcp: Annotated[
        bool,
        typer.Option("--tcp", help="Use TCP connections where multicast is not available (needs --seed)."),
    ] = False
    key_file: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="The keys that members share.  [default: those in $REKNIT_GROUP_KEY]"
        ),
    ] = ""
