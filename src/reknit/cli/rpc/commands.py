"""The commands `reknit request` and `reknit serve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import NodeUrl
from reknit.cli.output import log_to_stderr

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The address, such as //vcu/10/1/7.")]
Payload = Annotated[
    str | None, typer.Argument(metavar="PAYLOAD", help="The request's payload.  [default: stdin]")
]
Ttl = Annotated[
    int | None,
    typer.Option(min=1, metavar="MS", help="How long to wait for the reply.  [default: rpc.ttl_ms]"),
]
Priority = Annotated[
    int,
    typer.Option(min=4, max=6, metavar="N", help="The priority class, CS4 to CS6."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file with an access token for the service, which nobody else can read."
    ),
]
ClientName = Annotated[
    str, typer.Option(metavar="NAME", help="Send under a name, so that the sender's address stays the same.")
]
Command = Annotated[
    str,
    typer.Option(
        "--exec",
        metavar="COMMAND",
        help="The shell command for each request: payload on stdin, reply on stdout.",
    ),
]
HandlersMax = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="The number of requests handled at a time.  [default: rpc.handlers_max]"
    ),
]
ServiceName = Annotated[
    str, typer.Option(metavar="NAME", help="Serve the address together with services under other names.")
]


def request(
    address: Address,
    payload: Payload = None,
    ttl: Ttl = None,
    priority: Priority = 4,
    token_file: TokenFile = None,
    name: ClientName = "",
    node: NodeUrl = "",
) -> None:
    """Send a request to the service at an address, and print the reply.

    If there is no reply, it prints why, with a google.rpc code.
    """
    from reknit.cli.rpc.requests import send_request
    from reknit.config.credentials import read_private

    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    token = read_private(str(token_file), "--token-file").strip() if token_file else None
    reply = send_request(
        address, body, node=node, name=name, ttl_ms=ttl, priority=priority, token=token or None
    )
    sys.stdout.buffer.write(reply)
    if reply and not reply.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")


def serve(
    address: Address,
    command: Command,
    at_once: HandlersMax = None,
    name: ServiceName = "",
    node: NodeUrl = "",
) -> None:
    """Answer requests to an address with the output of a command, until Ctrl-C.

    The command reads the payload from stdin and finds the sender's address in $REKNIT_REQUEST_SOURCE. Its output is the
    reply. If it fails, the last line of its stderr is returned with the code UNKNOWN. At the request's deadline it is
    killed.
    """
    from reknit.cli.rpc.command_service import serve_command
    from reknit.cli.running import run

    log_to_stderr("info")
    run(serve_command(address, command, node=node, name=name, handlers_max=at_once))
