"""`POST /ticket`: a ticket for one stream of a page. EventSource and WebSocket can't send a token in a header."""

from __future__ import annotations

from typing import Final

import msgspec

from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.origins import FORBIDDEN, OriginPolicy
from reknit.gateway.http.requests import HttpRequest
from reknit.trust.tickets import LIFE_S, Tickets, TooManyTickets

PATH: Final = "/ticket"


class TicketPage:
    """Issues tickets to those who have proven who they are."""

    def __init__(self, tickets: Tickets, origins: OriginPolicy) -> None:
        self._tickets = tickets
        self._origins = origins

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Issue a ticket for the identity of a request."""
        if request.method != "POST":
            connection.answer_text(request, 400, "POST to get a ticket, with your token in a header")
        elif not self._origins.is_allowed(request):
            connection.answer_text(request, 403, FORBIDDEN)
        elif request.refusal or not request.identity.means:
            connection.answer_text(request, 403, request.refusal or "a ticket needs a token or a certificate")
        else:
            self._issue(connection, request)

    def _issue(self, connection: HttpConnection, request: HttpRequest) -> None:
        try:
            body = {"ticket": self._tickets.issue(request.identity), "expires_s": LIFE_S}
        except TooManyTickets as error:
            connection.answer_text(request, 503, str(error))
            return
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        headers += self._origins.cors(request)
        connection.answer(200, headers, msgspec.json.encode(body), request.keep_alive)
