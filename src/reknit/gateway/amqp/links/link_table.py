"""The links of one connection: attached as the client asks, found by the handles of proton's events."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from reknit.errors import InvalidTopic
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.addresses import topic_of
from reknit.gateway.amqp.codec.attach import DefaultOutcome
from reknit.gateway.amqp.codec.conditions import DETACH_FORCED, condition_of
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.links.incoming import RESEND_RELEASED, AmqpIncomingLink
from reknit.gateway.amqp.links.outgoing import AmqpOutgoingLink
from reknit.gateway.amqp.links.services import LinkServices
from reknit.ledger import OF_GATEWAYS
from reknit.outcome import Code
from reknit.topic import Pattern, check_topic
from reknit.trust.rules import ANONYMOUS

Link = AmqpIncomingLink | AmqpOutgoingLink


class LinkTable:
    """The links by their handles. `container` gives the client's container id, `default_outcome` that of a link."""

    def __init__(
        self,
        services: LinkServices,
        container: Callable[[], str],
        default_outcome: Callable[[str], DefaultOutcome | None],
    ) -> None:
        self._services = services
        self._container = container
        self._default_outcome = default_outcome
        self._links: dict[Handle, Link] = {}

    @property
    def open(self) -> list[Link]:
        """The links that are open."""
        return [link for link in self._links.values() if not link.is_gone]

    @property
    def unsettled(self) -> int:
        """Messages of this client without an outcome."""
        return sum(link.unsettled for link in self._links.values() if isinstance(link, AmqpIncomingLink))

    def resume(self) -> None:
        """The client may send again: all links have work to do."""
        self._services.turns.add_all(self._links.values())
        self._services.turns.wake()

    # -- attaching

    def link_opened(self, link: Handle) -> None:
        """Attach a link, or refuse it with the reason."""
        problem = self._attach(link)
        if problem is not None:
            code, text = problem
            deliveries.refuse_link(link, condition_of(code), text)

    def _attach(self, link: Handle) -> tuple[Code, str] | None:
        if self._services.intake.is_stopping:
            return Code.UNAVAILABLE, "the node stops"
        if len(self._links) >= self._services.settings.links_max:
            return Code.RESOURCE_EXHAUSTED, "the connection has too many links (amqp.links_max)"
        if deliveries.is_coordinator(link):
            return Code.UNIMPLEMENTED, "transactions are not supported"
        try:
            return self._attach_outgoing(link) if deliveries.is_sender(link) else self._attach_incoming(link)
        except InvalidTopic as error:
            return Code.INVALID_ARGUMENT, str(error)

    def _attach_incoming(self, link: Handle) -> tuple[Code, str] | None:
        services, target = self._services, deliveries.target(link)
        topic = services.replies.create() if target.is_dynamic else topic_of(target.address)
        if topic:
            check_topic(topic)
            if not services.rights.may_publish(topic):
                return Code.PERMISSION_DENIED, f"{services.rights.user} may not publish on {topic}"
            if why := self._source_objection(topic):
                return Code.RESOURCE_EXHAUSTED, why
        made = AmqpIncomingLink(
            services,
            link,
            topic=topic,
            resend_released=RESEND_RELEASED in target.capabilities,
            is_dynamic=target.is_dynamic,
        )
        self._links[link] = made
        bytes_max = services.node.stream_bytes_max(topic) if topic else None
        address = topic if target.is_dynamic else ""
        deliveries.open_link(link, services.message_bytes_max if bytes_max is None else bytes_max, address)
        made.give_credit()
        return None

    def _source_objection(self, topic: str) -> str:
        """Why the client may not publish on a further topic. An address for replies is not for long."""
        services = self._services
        return "" if topic in services.replies else services.quotas.publish(services.rights.user, topic)

    def _attach_outgoing(self, link: Handle) -> tuple[Code, str] | None:
        services, source = self._services, deliveries.source(link)
        pattern = Pattern(services.replies.create() if source.is_dynamic else topic_of(source.address))
        if not source.is_dynamic and not services.rights.may_read(pattern):
            return Code.PERMISSION_DENIED, f"{services.rights.user} may not read {pattern}"
        called = self._name(link)
        name = called if source.is_durable and not source.is_dynamic else ""
        if why := services.quotas.subscribe(services.rights.user, name):
            return Code.RESOURCE_EXHAUSTED, why
        self._links[link] = AmqpOutgoingLink(
            services,
            link,
            pattern=pattern,
            name=name,
            called=called,
            is_dynamic=source.is_dynamic,
            default_outcome=self._default_outcome(deliveries.link_name(link)),
        )
        return None

    def _name(self, link: Handle) -> str:
        """What a receiver is called. It contains the user, so that nobody can use another user's durable name."""
        user = self._services.rights.user
        who = () if user == ANONYMOUS else (user,)
        parts = (*who, self._container(), deliveries.link_name(link))
        return OF_GATEWAYS + "/".join(quote(part, safe="") for part in parts)

    # -- events of links

    def flowed(self, link: Handle) -> None:
        """A link's credit changed."""
        found = self._links.get(link)
        if isinstance(found, AmqpOutgoingLink):
            found.flowed()
            self._services.turns.add(found)

    def delivered(self, link: Handle, delivery: Handle) -> bool:
        """A delivery changed. True if more of it arrived."""
        found = self._links.get(link)
        if isinstance(found, AmqpOutgoingLink):
            found.delivered(delivery)
            return False
        if found is not None:
            self._services.turns.add(found)
        return found is not None

    def link_closed(self, link: Handle, is_closed: bool) -> None:
        """The client closed a link, or only detached it."""
        found = self._links.pop(link, None)
        if found is not None:
            self._services.turns.remove(found)
            if isinstance(found, AmqpIncomingLink):
                found.work()  # messages that arrived before the close count
            found.close(is_closed)
        deliveries.close_link(link, is_detach=not is_closed)
        deliveries.free_link(link)

    def session_closed(self, links: list[Handle]) -> None:
        """A session ended with its links."""
        for link in links:
            found = self._links.pop(link, None)
            if found is not None:
                self._services.turns.remove(found)
                found.close(is_closed=False)

    # -- the end

    def review(self) -> None:
        """The rules have changed: close the links that they allow no longer, with the reason."""
        rights = self._services.rights
        for link in self.open:
            if not link.is_permitted(rights):
                what = "publish on" if isinstance(link, AmqpIncomingLink) else "read"
                text = f"{rights.user} may no longer {what} {link.address}: the rules have changed"
                link.end(Code.PERMISSION_DENIED, text)

    def clear(self) -> None:
        """The connection is gone, or the client closed it."""
        for link in list(self._links.values()):
            link.close(is_closed=False)
        self._links.clear()
        self._services.turns.clear()

    def end(self, text: str) -> None:
        """Close every link with a reason."""
        for handle, link in self._links.items():
            link.close(is_closed=False)
            is_attached = isinstance(link, AmqpIncomingLink) or link.is_ready
            (deliveries.close_link if is_attached else deliveries.refuse_link)(handle, DETACH_FORCED, text)
