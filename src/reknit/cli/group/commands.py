"""The commands of `reknit group`."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.group import keys
from reknit.cli.group.network import NetworkOptions
from reknit.cli.options import AsJson, with_options
from reknit.cli.output import log_to_stderr

app = typer.Typer(help="Send events reliably within a group of programs.", no_args_is_help=True)
app.add_typer(keys.app, name="key")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name, which is also its topic.")]
Node = Annotated[
    str | None, typer.Option("--node", metavar="URL", help="Also store the group's events on this node.")
]
Member = Annotated[str, typer.Option("--as", metavar="NAME", help="Your name in the group.")]
Count = Annotated[int | None, typer.Option(min=1, metavar="N", help="Leave after N events.")]
Payload = Annotated[
    str | None,
    typer.Argument(metavar="PAYLOAD", help="The event's payload.  [default: stdin, one event per line]"),
]
MembersMin = Annotated[
    int, typer.Option(min=1, metavar="N", help="Wait until the group has N members, including you.")
]
WaitS = Annotated[float, typer.Option("--wait", min=0.0, metavar="S", help="Wait at most this many seconds.")]


@app.command()
@with_options
def join(
    *,
    group: Name,
    count: Count = None,
    network: NetworkOptions,
    node: Node = None,
    member: Member = "",
) -> None:
    """Join a group and print the events of its members, one per line."""
    from reknit.cli.group.membership import JoinOptions, print_events
    from reknit.cli.running import run

    log_to_stderr()
    options = JoinOptions(group, network, member, discard_own=False)
    run(options.use(lambda joined: print_events(joined, count), node))


@app.command()
@with_options
def send(
    *,
    group: Name,
    payload: Payload = None,
    members: MembersMin = 2,
    wait_s: WaitS = 10.0,
    network: NetworkOptions,
    node: Node = None,
    member: Member = "",
) -> None:
    """Send events to a group, and return when every member has them."""
    from reknit.cli.group.membership import JoinOptions, send_events
    from reknit.cli.running import run

    log_to_stderr()
    options = JoinOptions(group, network, member, discard_own=True)
    run(options.use(lambda joined: send_events(joined, payload, members, wait_s), node))


@app.command()
@with_options
def members(*, group: Name, as_json: AsJson = False, network: NetworkOptions) -> None:
    """List the members of a group by rank, without joining it."""
    from reknit.cli.group.membership import list_members

    list_members(group, network, as_json)
