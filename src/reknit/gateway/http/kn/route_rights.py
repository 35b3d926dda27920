"""The right to a route between two topics: its maker has to read the first, and publish on the second."""

from __future__ import annotations

from reknit.gateway.access import Access


def route_objection(access: Access, user: str, from_topic: str, to_topic: str) -> str:
    """Why a user may not route one topic to another; empty if they may."""
    readable = access.readable(user)
    if readable is not None and not any(one.matches(from_topic) for one in readable):
        return f"{user} may not read /{from_topic}"
    if not access.may_publish(user, to_topic):
        return f"{user} may not post to /{to_topic}"
    return ""
