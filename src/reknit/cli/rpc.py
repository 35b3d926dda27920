"""`reknit request` and `reknit serve`: ask an address, and answer for one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import NodeUrl
from reknit.cli.output import fail, log_to_stderr, say

if TYPE_CHECKING:
    from reknit.client.rpc.requests import Reply
    from reknit.client.rpc.service import Request

STDERR_BYTES_MAX = 300


def request(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Whom to ask, for instance //vcu/10/1/7.")
    ],
    payload: Annotated[str | None, typer.Argument(metavar="PAYLOAD", help="What.  [default: stdin]")] = None,
    ttl: Annotated[
        int | None,
        typer.Option(min=1, metavar="MS", help="How long to wait for an answer.  [default: rpc.ttl_ms]"),
    ] = None,
    priority: Annotated[int, typer.Option(min=4, max=6, metavar="N", help="From 4 to 6, for safety.")] = 4,
    token: Annotated[str, typer.Option(metavar="TOKEN", help="What the service is shown.")] = "",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Ask under a name, whose address stays the same.")
    ] = "",
    node: NodeUrl = "",
) -> None:
    """Ask whoever serves an address, and print the answer.

    Where there is none, it says why, and with which google.rpc code.
    """
    from reknit.cli.running import run
    from reknit.errors import RequestFailed
    from reknit.outcome import Code

    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    try:
        reply = run(_ask(node, name, address, body, ttl, priority, token))
    except RequestFailed as error:
        fail(f"{Code(error.code).name}: {error.text}")
    sys.stdout.buffer.write(reply.payload)
    if not reply.payload.endswith(b"\n") and reply.payload:
        sys.stdout.buffer.write(b"\n")


async def _ask(
    node: str, name: str, address: str, body: bytes, ttl_ms: int | None, priority: int, token: str
) -> Reply:
    from reknit.cli.running import connected

    async with connected(node, name) as session:
        return await session.request(address, body, ttl_ms=ttl_ms, priority=priority, token=token or None)


def serve(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="For whom to answer.")],
    command: Annotated[
        str,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run by the shell for each request: payload in, answer out."
        ),
    ],
    at_once: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Requests handled at a time.  [default: rpc.handlers_max]"),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Serve beside others that serve the same address.")
    ] = "",
    node: NodeUrl = "",
) -> None:
    """Answer requests to an address with what a command prints, until Ctrl-C.

    The command gets the payload on its stdin, and who asks in $REKNIT_REQUEST_SOURCE. What it prints is the answer. If
    it fails, the last thing that it said on stderr is told with the code UNKNOWN. At the request's deadline it is
    killed.
    """
    from reknit.cli.running import run

    log_to_stderr("info")
    run(_serve(node, name, address, command, at_once))


async def _serve(node: str, name: str, address: str, command: str, at_once: int | None) -> None:
    from reknit.cli.running import connected

    async def handler(request: Request) -> bytes:
        return await _execute(command, request)

    async with (
        connected(node) as session,
        session.serve(address, handler, name=name, handlers_max=at_once) as service,
    ):
        say(f"serving {service.address}; try: reknit request {service.address} hello")
        await service.wait()


async def _execute(command: str, request: Request) -> bytes:
    """What the command prints. Raises `Refused` with what it says if it fails."""
    import asyncio
    import os
    import signal
    from asyncio.subprocess import PIPE
    from contextlib import suppress
    from tempfile import TemporaryFile

    from reknit.errors import Refused
    from reknit.outcome import Code

    environ = {**os.environ, "REKNIT_REQUEST_SOURCE": str(request.attributes.source)}
    with TemporaryFile() as file:  # not a pipe: a command may leave unread what it does not want
        file.write(request.payload)
        file.seek(0)
        process = await asyncio.create_subprocess_shell(
            command, stdin=file, stdout=PIPE, stderr=PIPE, env=environ, start_new_session=True
        )
    try:
        out, said = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        words = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise Refused(Code.UNKNOWN, words[-1][:STDERR_BYTES_MAX])
    return out
