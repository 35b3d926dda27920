"""Sends the request of `reknit request`."""

from __future__ import annotations

from reknit.cli.output import fail
from reknit.cli.running import connected, run
from reknit.errors import RequestFailed
from reknit.outcome import Code


def send_request(
    address: str,
    payload: bytes,
    *,
    node: str,
    name: str,
    ttl_ms: int | None,
    priority: int,
    token: str | None,
) -> bytes:
    """The reply's payload. Ends the command with one line if the request fails."""

    async def send() -> bytes:
        async with connected(node, name) as session:
            reply = await session.request(address, payload, ttl_ms=ttl_ms, priority=priority, token=token)
            return reply.payload

    try:
        return run(send())
    except RequestFailed as error:
        fail(f"{Code(error.code).name}: {error.text}")
