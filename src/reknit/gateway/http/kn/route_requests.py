"""`do_method=route` with a destination: create, change or delete a route between two topics."""

from __future__ import annotations

import asyncio

from reknit.config import HttpSettings
from reknit.gateway.access import Access
from reknit.gateway.http.kn.parameters import age_of, count_of
from reknit.gateway.http.kn.route_rights import route_objection
from reknit.gateway.http.kn.router import KnRouter
from reknit.gateway.http.kn.status import BAD_REQUEST, FORBIDDEN, StatusEvent, new_id
from reknit.gateway.http.kn.topics import to_topic
from reknit.gateway.http.promises import JournalPromises
from reknit.gateway.http.requests import Form, first
from reknit.gateway.http.scopes import PatternScope
from reknit.protocol.tunnel.elements import ID, refusal
from reknit.protocol.tunnel.reconnect import ReconnectDenied, since_age, since_checkpoint
from reknit.protocol.tunnel.topic_routes import TopicRoute
from reknit.topic import Pattern


class RouteRequests:
    """Carries out requests for routes."""

    def __init__(
        self, settings: HttpSettings, *, access: Access, router: KnRouter, promises: JournalPromises
    ) -> None:
        self._settings = settings
        self._access = access
        self._router = router
        self._promises = promises

    async def route(self, form: Form, from_topic: str, base: str, user: str) -> StatusEvent:
        """Route `from_topic` to `kn_to`; with an empty `kn_to`, delete the route. Raises `InvalidTopic`."""
        router = self._router
        id = first(form, ID) or new_id()
        old = router.routes.get(from_topic, id)
        to = first(form, "kn_to")
        elements = {ID: id}
        if not to:
            if old is not None:
                if denied := self._denial(form, from_topic, old.to_topic, user):
                    return denied
                await router.remove(old)
            return StatusEvent("200 Routed", "the route is deleted", elements)
        destination = to_topic(to, base)
        touched = (destination,) if old is None else (destination, old.to_topic)
        for topic in touched:
            if denied := self._denial(form, from_topic, topic, user):
                return denied
        if old is not None and old.to_topic == destination:
            return StatusEvent("200 Ignored route", "", elements)
        if router.is_full:
            return StatusEvent("500 Internal Server Error", "there are too many routes")
        try:
            age_s, count = age_of(form), count_of(form) or 0
        except ValueError as error:
            return StatusEvent(BAD_REQUEST, str(error))
        since = self._since(form, from_topic, age_s, count)
        if isinstance(since, ReconnectDenied):
            return StatusEvent(since.status, since.why)
        route = TopicRoute(id, from_topic, destination, -1, since, count, first(form, "kn_uri"), user)
        await asyncio.wait_for(router.put(route), self._settings.request_timeout_s)
        return StatusEvent("200 Routed", "", elements)

    def _denial(self, form: Form, from_topic: str, to: str, user: str) -> StatusEvent | None:
        if why := refusal(name for name, value in form if value):
            return StatusEvent(BAD_REQUEST, why)
        if why := route_objection(self._access, user, from_topic, to):
            return StatusEvent(FORBIDDEN, why)
        return None

    def _since(self, form: Form, from_topic: str, age_s: float | None, count: int) -> int | ReconnectDenied:
        """The position at which the population of a new route begins; -1 without a population."""
        held = self._promises.held(PatternScope(Pattern(from_topic), None))
        if checkpoint := first(form, "do_since_checkpoint"):
            granted = since_checkpoint(checkpoint, held)
        elif age_s is not None:
            granted = since_age(age_s, self._settings.grace_s, held)
        else:
            return held.start if count else -1
        return granted if isinstance(granted, ReconnectDenied) else granted.place.position
