"""The rights of one client: which topics it may read and write."""

from __future__ import annotations

from reknit.gateway.access import Access
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.protocol.tunnel.topic_routes import is_routes
from reknit.topic import Pattern
from reknit.trust.refusals import Refusals


class ClientRights:
    """The rights of a user, by the rules of the node."""

    def __init__(
        self, user: str, access: Access, replies: ReplyAddresses, refusals: Refusals, address: str
    ) -> None:
        self.user = user
        self._access = access
        self._replies = replies
        self._refusals = refusals
        self._address = address

    def may_publish(self, topic: str) -> bool:
        """Whether this client may publish on the topic. Everyone may publish on an address for replies.

        Routes between topics are made over HTTP, where the right to each is checked.
        """
        is_free = not is_routes(topic) and self._access.may_publish(self.user, topic)
        is_allowed = topic in self._replies or is_free
        return is_allowed or self._refuse(f"publish {topic!r}")

    def may_read(self, pattern: Pattern) -> bool:
        """Whether this client may read all topics that match the pattern."""
        allowed = self._access.readable(self.user)
        is_allowed = allowed is None or any(one.includes(pattern) for one in allowed)
        return is_allowed or self._refuse(f"subscribe {pattern.text!r}")

    def _refuse(self, what: str) -> bool:
        text = f"{self.user} may not {what}"
        self._refusals.report(self.user, "denied", text, address=self._address, door="amqp")
        return False
