"""Status events: how a request to `/kn` is answered. The HTTP status line says the same."""

from __future__ import annotations

import msgspec

from reknit import environment


class StatusEvent(msgspec.Struct, frozen=True):
    """The status event of one request.

    >>> StatusEvent("403 Forbidden", "the token is unknown").code
    403
    """

    status: str
    text: str = ""
    elements: dict[str, str] = {}
    retry_after_s: int = 0
    """When the request may be repeated; 0 if nothing is known about that."""

    @property
    def code(self) -> int:
        return int(self.status[:3])

    @property
    def reason(self) -> str:
        return self.status[4:]


BAD_REQUEST, FORBIDDEN = "400 Bad Request", "403 Forbidden"
TOO_MANY = "429 Too Many Requests"


def new_id() -> str:
    """A pseudorandom event id."""
    return f"{int(environment.time_us() / 1e6)}_{environment.token_hex(8)}"
