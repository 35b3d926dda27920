"""The interfaces between a node and its gateways.

A gateway is given a `GatewayNode`, never the whole node. A node is given factories of attachments by `reknit.server`:
doors, which let foreign clients in, and importers, which bring events from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from reknit.batch import Batch
from reknit.config import Config
from reknit.node.anycast.gateway_api import AnycastApi
from reknit.node.core.core_quotas import CoreQuotas
from reknit.node.core.journal_tail import JournalTail
from reknit.node.file_reloader import FileReloader
from reknit.node.peers.budget import BudgetedPeer
from reknit.node.replication.local_publisher import LocalPublisher, OnDurable, OnGap, OnRefused
from reknit.protocol.links.followed_topics import FollowedTopics
from reknit.protocol.publish.rate_quotas import RateQuotas
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.transport.connection import Handler
from reknit.trust.gate import Gate


class Attachment(Protocol):
    """Runs beside a node, from `start` to `stop`."""

    async def start(self) -> None:
        """Begin. Raises `InvalidConfig`."""

    async def stop(self) -> None:
        """End. Not called where `start` failed."""


class Door(Attachment, Protocol):
    """A gateway that listens for clients of a foreign protocol."""

    url: str
    """Where it listens, once it was started."""

    def status(self) -> dict[str, Any]:
        """Figures for the node's status."""

    def clients(self) -> Iterable[tuple[int, Any]]:
        """Its connections, each with a number that is never used again."""

    def describe(self, client: Any) -> dict[str, Any]:
        """Who a client is, and what it holds."""

    def end_client(self, number: int, why: str) -> bool:
        """End a connection with a reason. False if it is gone."""


class LinkedNodes(Protocol):
    """The links of a node, as far as gateways need them."""

    @property
    def followed(self) -> FollowedTopics:
        """The topics that linked nodes send here because a gateway's client reads them."""

    def followed_since(self, patterns: Iterable[str]) -> int | None:
        """The position from which on these topics came here without a break; None if they do not."""

    def knows(self, node: str) -> bool:
        """Whether a node is or was linked with this one, directly or over others: its events come over links."""

    def origin(self, source: bytes) -> str:
        """The node on which a source is published, as far as is known."""


class GatewayNode(Handler, Protocol):
    """A node as its gateways see it. Connections within the process may be opened to it."""

    config: Config
    name: str
    epoch: str
    """The journal's name, which changes when positions start anew."""
    gate: Gate
    """It knows identities and rules. A gateway asks it for its clients."""
    reloader: FileReloader
    """Reads files again when they change. A gateway adds what it reads."""
    journal: Journal
    started_at: float
    """By `environment.monotonic`."""
    watchers: list[Callable[[], None]]
    """Called when more of the journal is durable."""

    def budget_clients(self, clients: Callable[[], Iterable[BudgetedPeer]]) -> None:
        """Count what a gateway holds for its clients against `limits.peer_bytes_max` and the budget of all peers."""

    @property
    def intake_problem(self) -> str:
        """Why the node takes no events now; empty if it does."""

    @property
    def rates(self) -> RateQuotas | None:
        """The quotas for publishing; None if there are none."""

    @property
    def quotas(self) -> CoreQuotas | None:
        """The quotas of identities; None if there are none."""

    def claim(self, name: str, owner: str) -> None:
        """The durable subscriber that a gateway opens next under this name belongs to an identity."""

    @property
    def links(self) -> LinkedNodes:
        """The links to other nodes."""

    @property
    def tail(self) -> JournalTail:
        """Reads the journal for everybody who follows it: what is new is read once."""

    @property
    def anycast(self) -> AnycastApi:
        """Delivery to one of many subscribers."""

    def subscriptions(self) -> Iterable[tuple[str, Pattern]]:
        """Everybody who is subscribed now: the name of the subscriber, or of its connection, and the pattern."""

    def find(
        self, topic: str, source: bytes, start: int, stop: int, bytes_max: int | None = None
    ) -> list[Batch]:
        """The events `[start, stop)` that are held, as batches cut to that range: as many as fit."""

    def local_publisher(
        self,
        name: str,
        on_durable: OnDurable,
        on_gap: OnGap | None = None,
        on_refused: OnRefused | None = None,
    ) -> LocalPublisher:
        """Publishes batches that have a source and seqs already."""
