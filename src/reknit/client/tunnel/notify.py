"""Posting an event over HTTP."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from reknit.client.http_request import http_request, tls_of
from reknit.config import Config
from reknit.errors import NotConnected, RemoteError, TlsFailed
from reknit.protocol.tunnel.elements import ID, PAYLOAD
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.transport.tls_failures import failure_of_node

ANSWER_S: Final = 60.0
"""How long an event that is posted may take to be confirmed."""


async def notify(
    url: str,
    topic: str,
    payload: str | bytes,
    *,
    id: str = "",
    token: str = "",
    tls: ssl.SSLContext | None = None,
    config: Config | None = None,
    **elements: str,
) -> None:
    """Post an event; returns when it is stored. With an `id`, posting it again changes nothing.

    Raises `NotConnected`, `RemoteError`.
    """
    form: dict[str, str | bytes] = {"do_method": "notify", "kn_to": "/" + topic.strip("/"), **elements}
    form |= {"kn_response_format": "simple", PAYLOAD: payload}
    if id:
        form[ID] = id
    context = tls_of(url, tls, config or Config())
    decoder = SimpleDecoder()
    found: list[dict[str, bytes]] = []
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            http_request(url.rstrip("/"), form, token, context, "POST") as answer,
        ):
            async for data in answer.parts:
                found += decoder.feed(data)
    except ssl.SSLError as error:
        raise TlsFailed(url, failure_of_node(error)) from None
    except OSError as error:
        raise NotConnected(url, str(error) or "no answer came in time") from None
    if answer.code != 200:
        text = found[0][PAYLOAD].decode("utf-8", "replace") if found else ""
        raise RemoteError(f"the server refused the event: HTTP {answer.code} {text}".strip())
