"""Answers that are none of a tunnel: a server's refusal, or what a proxy or a login page says in its place."""

from __future__ import annotations

import re
from typing import Final

from reknit.client.http_request import HttpAnswer
from reknit.errors import MalformedFrame
from reknit.protocol.tunnel.client_messages import AnswerRefused, StatusReceived
from reknit.protocol.tunnel.elements import STATUS
from reknit.protocol.tunnel.simple_format import SimpleDecoder

BODY_BYTES_MAX: Final = 16 << 10
"""How much of such an answer is read."""
QUOTED_MAX: Final = 120
_TAGS: Final = re.compile(r"<[^<>]*>|\s+")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


async def refusal_of(url: str, answer: HttpAnswer) -> StatusReceived | AnswerRefused:
    """What an answer other than 200 says: its status event, if it has one. Raises `OSError`."""
    body = b""
    try:
        async for part in answer.parts:
            body += part
            if len(body) > BODY_BYTES_MAX:
                break
        events = SimpleDecoder().feed(body)
    except MalformedFrame:
        events = []
    if events and STATUS in events[0]:
        return StatusReceived(events[0])
    retry_after = answer.headers.get("retry-after", "")
    return AnswerRefused(
        answer.code,
        not_a_tunnel(url, answer, body),
        float(retry_after) if _SECONDS.fullmatch(retry_after) else 0.0,
    )


def not_a_tunnel(url: str, answer: HttpAnswer, body: bytes) -> str:
    """What to tell somebody who expected a tunnel.

    >>> answer = HttpAnswer(302, {"location": "https://login.example/"}, None)
    >>> not_a_tunnel("http://node:8080", answer, b"<p>Please  log in</p>")
    "http://node:8080/kn answered HTTP 302 to https://login.example/, which is no tunnel: 'Please log in'"
    """
    to = answer.headers.get("location", "")
    text = _TAGS.sub(" ", body.decode("utf-8", "replace"))
    words = " ".join(text.split())[:QUOTED_MAX]
    return (
        f"{url}/kn answered HTTP {answer.code}{f' to {to[:QUOTED_MAX]}' if to else ''}, which is no tunnel"
        + (f": {words!r}" if words else "")
    )
