"""The rights of one client: which topics it may read and write."""

from __future__ import annotations

from reknit.gateway.access import AccessRules
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.topic import Pattern


class ClientRights:
    """The rights of a user, by the rules of `amqp.allow`."""

    def __init__(self, user: str, rules: AccessRules, replies: ReplyAddresses) -> None:
        self.user = user
        self._rules = rules
        self._replies = replies

    def may_write(self, topic: str) -> bool:
        """Whether this client may publish on the topic. Everyone may publish on an address for replies."""
        return topic in self._replies or self._rules.may_write(self.user, topic)

    def may_read(self, pattern: Pattern) -> bool:
        """Whether this client may read all topics that match the pattern."""
        allowed = self._rules.readable(self.user)
        return allowed is None or any(one.includes(pattern) for one in allowed)
