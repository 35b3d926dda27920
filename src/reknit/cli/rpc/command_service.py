"""A service that answers each request with the output of a shell command."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from tempfile import TemporaryFile

from reknit.cli.output import say
from reknit.cli.running import connected
from reknit.client.rpc.service import Request
from reknit.errors import Refused
from reknit.outcome import Code

STDERR_CHARS_MAX = 300


async def serve_command(
    address: str, command: str, *, node: str, name: str, handlers_max: int | None
) -> None:
    """Serve an address until cancelled."""

    async def handler(request: Request) -> bytes:
        return await _execute(command, request)

    async with (
        connected(node) as session,
        session.serve(address, handler, name=name, handlers_max=handlers_max) as service,
    ):
        say(f"serving {service.address}; try: reknit request {service.address} hello")
        await service.wait()


async def _execute(command: str, request: Request) -> bytes:
    """The command's output. Raises `Refused` with the last line of its stderr if it fails."""
    process = await _start(command, request)
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise Refused(Code.UNKNOWN, lines[-1][:STDERR_CHARS_MAX])
    return output


async def _start(command: str, request: Request) -> Process:
    """Start the command in a session of its own, so that its children can be killed with it."""
    environ = {**os.environ, "REKNIT_REQUEST_SOURCE": str(request.attributes.source)}
    with TemporaryFile() as file:  # not a pipe: a command may exit without reading its stdin
        file.write(request.payload)
        file.seek(0)
        return await asyncio.create_subprocess_shell(
            command, stdin=file, stdout=PIPE, stderr=PIPE, env=environ, start_new_session=True
        )
