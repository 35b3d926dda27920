"""The services that all links of a connection share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reknit.config import AmqpSettings
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.links.intake import ClientIntake
from reknit.gateway.amqp.links.replies import ReplyAddresses
from reknit.gateway.amqp.links.rights import ClientRights
from reknit.gateway.amqp.links.turns import LinkTurns
from reknit.gateway.amqp.node_client import NodeClient
from reknit.gateway.client_quotas import ClientQuotas


class DeliveryCounts:
    """Messages taken from clients and sent to clients since the node started."""

    def __init__(self) -> None:
        self.incoming = self.outgoing = 0
        self.dropped = 0
        """Messages that were sent settled, and that nobody accepted: their senders hear nothing."""

    def took(self, messages: int) -> None:
        """This many messages were taken from a client."""
        self.incoming += messages

    def dropped_settled(self, messages: int) -> None:
        """Nobody accepted this many messages that were sent settled."""
        self.dropped += messages

    def sent(self, messages: int) -> None:
        """This many messages were sent to a client."""
        self.outgoing += messages


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkServices:
    """The services of one connection's links."""

    settings: AmqpSettings
    message_bytes_max: int
    node: NodeClient
    counts: DeliveryCounts
    replies: ReplyAddresses
    rights: ClientRights
    quotas: ClientQuotas
    intake: ClientIntake
    turns: LinkTurns
    session_room: Callable[[Handle], int | None]
    """How many more bytes of a stream the client's session takes; None where that does not matter."""

    def stream_room(self, link: Handle) -> int:
        """How many more bytes of a stream may be asked for."""
        room, waiting = self.session_room(link), deliveries.waiting_bytes(link)
        room = self.settings.output_bytes_max if room is None else min(room, self.settings.output_bytes_max)
        return room - waiting

    def output_room(self, link: Handle) -> int:
        """How many more bytes may wait to be sent on the link's session."""
        return self.settings.output_bytes_max - deliveries.waiting_bytes(link)
