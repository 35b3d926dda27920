"""Everything known about one node: its links and subscriptions, with the numbers that tell which update is newer."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from reknit.ledger import QUEUES
from reknit.wire.links import LinkState

Interest = tuple[str, str]
"""(pattern, mode); of a queue the mode is the name of its account, so that it is on one node only."""


class RememberedNode(msgspec.Struct, frozen=True):
    """Another node as it was known last: this outlasts a restart.

    Shared subscriptions are not part of it: events for one of many wait on the node where they were published.
    """

    state: LinkState
    instance: int
    patterns: list[str]
    """The topics of which it gets every event."""
    queues: list[Interest] = []
    """Its queues: with the pattern, the name of the account."""


@dataclass(slots=True)
class KnownNode:
    """One node as known here: its links, and its subscriptions with the instance and seq of their last change."""

    state: LinkState
    instance: int = 0
    seq: int = 0
    interests: set[Interest] = field(default_factory=set)
    interests_before: set[Interest] = field(default_factory=set)
    """Subscriptions from before its last restart that did not come back yet."""

    @classmethod
    def remembered(cls, node: RememberedNode) -> KnownNode:
        """As known before a restart of this node; seq 0, so that every announcement is newer."""
        interests = {(pattern, "journal") for pattern in node.patterns} | set(node.queues)
        return cls(node.state, node.instance, 0, interests)

    def memory(self) -> RememberedNode:
        """What outlasts a restart of this node."""
        patterns = sorted(pattern for pattern, mode in self.interests if mode == "journal")
        queues = sorted(interest for interest in self.interests if interest[1].startswith(QUEUES))
        return RememberedNode(self.state, self.instance, patterns, queues)

    @property
    def is_met(self) -> bool:
        """Whether its subscriptions were announced since this node started."""
        return self.seq > 0

    def is_older_than(self, state: LinkState) -> bool:
        """Whether a link state is newer than the one that is known."""
        return (state.instance, state.seq) > (self.state.instance, self.state.seq)

    def update_links(self, state: LinkState) -> None:
        """A newer link state came."""
        self.state = state

    def set_links(self, links: dict[str, int]) -> None:
        """For this node: its links changed."""
        self.state = msgspec.structs.replace(self.state, seq=self.state.seq + 1, links=links)

    def outdo_links(self, state: LinkState) -> None:
        """For this node: be newer than a link state from before its restart."""
        self.state = msgspec.structs.replace(self.state, instance=state.instance, seq=state.seq + 1)
        self.instance = state.instance

    def update_interests(self, instance: int, seq: int, interests: set[Interest]) -> None:
        """A newer announcement came."""
        if instance != self.instance:
            self.interests_before |= self.interests
        self.interests_before -= interests
        self.instance, self.seq, self.interests = instance, seq, interests

    def change_interests(self) -> None:
        """For this node: its subscriptions changed."""
        self.seq += 1

    def outdo_interests(self, instance: int, seq: int) -> None:
        """For this node: be newer than an announcement from before its restart."""
        self.instance, self.seq = instance, seq + 1
