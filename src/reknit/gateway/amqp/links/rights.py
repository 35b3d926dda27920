"""The rights of one client: which topics it may read and write."""

from __future__ import annotations

from reknit.gateway.access import Access
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.topic import Pattern


class ClientRights:
    """The rights of a user, by the rules of the node."""

    def __init__(self, user: str, access: Access, replies: ReplyAddresses) -> None:
        self.user = user
        self._access = access
        self._replies = replies

    def may_publish(self, topic: str) -> bool:
        """Whether this client may publish on the topic. Everyone may publish on an address for replies."""
        return topic in self._replies or self._access.may_publish(self.user, topic)

    def may_read(self, pattern: Pattern) -> bool:
        """Whether this client may read all topics that match the pattern."""
        allowed = self._access.readable(self.user)
        return allowed is None or any(one.includes(pattern) for one in allowed)
