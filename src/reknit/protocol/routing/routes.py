"""A node's view of the others: their links with costs, and their subscriptions. Routes are computed from it.

Every change is forwarded at once to all neighbours that may not know it. Each message carries its node's instance
(when it started) and a seq: an old message changes nothing, and a node that misses an update requests the full state.
Heartbeats, which neighbours exchange anyway to detect a lost link, say how much each side knows, so that a lost update
is requested. Neighbours that know the same tell each other only its digest, however many nodes there are.

    LinkUp             the neighbour gets everything that is known; our links changed: LinkState to all neighbours
    LinkDown           our links changed: LinkState to all neighbours
    Interests          our subscriptions changed: Announce to all neighbours
    LinkState          newer than known -> Rerouted, forwarded to the other neighbours
    Announce           the next one -> Rerouted, forwarded; after a gap -> AskWhole
    AskWhole           LinkState and a whole Announce to the neighbour that asks
    Beat               AskWhole for every node that the neighbour knows better
    tick               Beat to all neighbours; a silent neighbour: DropLink

Old messages, and AskWhole from a neighbour that is gone or for an unknown node, change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, assert_never, get_args

from msgspec.msgpack import encode
from xxhash import xxh3_64_intdigest

from reknit.protocol.machine import Machine, Peer
from reknit.protocol.routing.inputs import (
    DropLink,
    Effect,
    Input,
    Interests,
    LinkDown,
    LinkUp,
    Rerouted,
    SendToNeighbour,
    SourceDeclared,
    SourceEntered,
    SubscriptionsChanged,
)
from reknit.protocol.routing.known_node import Interest, KnownNode, RememberedNode
from reknit.protocol.routing.shortest_paths import Graph, NodeRoute, graph_of, shortest
from reknit.topic import Pattern
from reknit.topic_index import TopicIndex
from reknit.wire.links import Announce, AskWhole, Beat, LinkState, VersionRow
from reknit.wire.messages import Message

__all__ = [
    "DropLink", "Effect", "Input", "Interests", "LinkDown", "LinkUp", "Mode", "Rerouted", "Routes", "SendToNeighbour",
    "SourceDeclared", "SourceEntered", "SubscriptionsChanged",
]  # fmt: skip

ROUTES_MAX: Final = 1024
"""How many answers to 'which routes, without these nodes' are remembered."""

Mode = Literal["journal", "any", "stream"]


class Routes:
    """One node's view of all nodes.

    >>> routes = Routes("a", instance=1)
    >>> routes.receive(LinkUp(cost=1), "b", 0.0)
    >>> routes.receive(LinkState("b", 1, 1, {"a": 1}), "b", 0.0)
    >>> routes.receive(Announce("b", 1, 1, [("plant/**", "any")], is_whole=True), "b", 0.0)
    >>> routes.destinations("plant/temp", "any"), routes.reachable()["b"].cost
    (('b',), 1)
    """

    def __init__(
        self,
        name: str,
        instance: int,
        beat_s: float = 1.0,
        timeout_s: float = 3.0,
        is_edge: bool = False,
        nodes_max: int = 1024,
        remembered: Mapping[str, RememberedNode] | None = None,
    ) -> None:
        self.name = name
        self._beat_s = beat_s
        self._timeout_s = timeout_s
        self._nodes_max = nodes_max
        self._links: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._digests: dict[str, int] = {}
        """What each neighbour knew by its last heartbeat."""
        self._beat_at = float("-inf")
        self._counts: dict[Interest, int] = {}
        """How many subscriptions of this node have the same interest."""
        own = LinkState(name, instance, 1, {}, is_edge)
        self.known: dict[str, KnownNode] = {name: KnownNode(own, instance, 1)}
        self._index: dict[str, TopicIndex[str]] = {mode: TopicIndex() for mode in get_args(Mode)}
        self._graph: Graph | None = None
        self._edges: frozenset[str] = frozenset()
        self._ways: dict[tuple[str, frozenset[str]], dict[str, NodeRoute]] = {}
        self._effects: list[Effect] = []
        self._changed_nodes: set[str] = set()
        for node, memory in (remembered or {}).items():
            if node != name:
                self._remember(node, memory)

    def _remember(self, node: str, memory: RememberedNode) -> None:
        """A node was known before the restart of this one: events for it are not passed over until it is back."""
        self.known[node] = KnownNode.remembered(memory)
        for pattern in memory.patterns:
            self._index["journal"].add(Pattern(pattern), node)

    # -- questions

    def destinations(self, topic: str, mode: Mode) -> tuple[str, ...]:
        """The other nodes that have subscribers to a topic, whether they can be reached or not."""
        return self._index[mode].match(topic)

    def queue_nodes(self, account: str) -> list[str]:
        """The other nodes that have a queue, whether they can be reached or not, by name."""
        return [
            name
            for name, known in sorted(self.known.items())
            if name != self.name and any(mode == account for _, mode in known.interests)
        ]

    def reachable(self, without: Collection[str] = (), start: str = "") -> dict[str, NodeRoute]:
        """The route to every node that can be reached, from here or from another node, not through some nodes."""
        key = (start or self.name, frozenset(without))
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= ROUTES_MAX:
                self._ways.clear()
            found = self._ways[key] = shortest(self._topology(), key[0], self._edges, key[1])
        return found

    @property
    def has_effects(self) -> bool:
        """Whether effects wait to be taken."""
        return bool(self._effects)

    def take_changed(self) -> dict[str, RememberedNode | None]:
        """The nodes that changed since the last call, as they are to be remembered; None if forgotten."""
        names, self._changed_nodes = self._changed_nodes, set()
        return {name: self.known[name].memory() if name in self.known else None for name in sorted(names)}

    def children(
        self, origin: str, nodes: Iterable[str], with_lost: bool = False, with_away: bool = False
    ) -> dict[str, list[str]]:
        """The neighbours that get events published on `origin` from here, and for which of these nodes.

        With `with_lost`, events for a node that can't be reached go as far as possible along its last route; with
        `with_away`, that may lead over a neighbour which is not linked now.
        """
        live = self.reachable(start=origin)
        found: dict[str, list[str]] = {}
        for node in nodes:
            tree = self._last_routes(origin) if with_lost and node not in live else live
            at = node
            while at in tree and tree[at].before != self.name:
                at = tree[at].before
            if at in tree and (at in self._links or with_away):
                found.setdefault(at, []).append(node)
        return found

    def _last_routes(self, origin: str) -> dict[str, NodeRoute]:
        """The routes, including links that only one end still reports."""
        key = (f"{origin} before", frozenset[str]())
        found = self._ways.get(key)
        if found is None:
            states = {name: known.state for name, known in self.known.items()}
            graph = graph_of(states, both=False)
            found = self._ways[key] = shortest(graph, origin, self._edges)
        return found

    def _topology(self) -> Graph:
        if self._graph is None:
            states = {name: known.state for name, known in self.known.items()}
            self._graph = graph_of(states)
            self._edges = frozenset(name for name, state in states.items() if state.is_edge)
        return self._graph

    @property
    def neighbours(self) -> dict[str, int]:
        """The nodes that are linked to this one, and the cost from here."""
        return self._links

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from a neighbour, or about the link to it; `peer` is its name. `Interests` come from this node."""
        name = str(peer)
        if name in self._heard:
            self._heard[name] = now
        match message:
            case LinkUp(cost=cost):
                self._up(name, cost, now)
            case LinkDown():
                self._down(name)
            case Interests(added=added, removed=removed):
                self._own(added, removed)
            case LinkState():
                self._state(message, name)
            case Announce():
                self._announce(message, name)
            case AskWhole(node=node):
                self._tell_whole(node, name)
            case Beat(rows=rows, digest=digest):
                if name in self._links:
                    self._digests[name] = digest
                self._compare(rows, name)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Send heartbeats, and drop neighbours that send none."""
        for name, heard in list(self._heard.items()):
            if now - heard >= self._timeout_s:
                self._effects.append(DropLink(name))
                self._down(name)
        if self._links and now >= self._beat_at:
            self._beat_at = now + self._beat_s
            rows = self._versions()
            digest = xxh3_64_intdigest(encode(rows)) or 1
            whole, brief = Beat(rows, digest), Beat([], digest)
            for name in sorted(self._links):
                beat = brief if self._digests.get(name) == digest else whole
                self._effects.append(SendToNeighbour(name, beat))

    def next_deadline(self) -> float | None:
        """When the next heartbeat is due."""
        return self._beat_at if self._links else None

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- links

    def _up(self, name: str, cost: int, now: float) -> None:
        self._links[name] = cost
        self._heard[name] = now
        self._beat_at = min(self._beat_at, now + self._beat_s) if self._beat_at > now else now + self._beat_s
        self._own_links()
        for node in sorted(self.known):
            self._tell_whole(node, name)

    def _down(self, name: str) -> None:
        self._heard.pop(name, None)
        self._digests.pop(name, None)
        if self._links.pop(name, None) is not None:
            self._own_links()

    def _own_links(self) -> None:
        own = self.known[self.name]
        own.set_links(dict(self._links))
        self._changed()
        self._flood(own.state, "")

    def _state(self, state: LinkState, peer: str) -> None:
        known = self.known.get(state.node)
        if state.node == self.name:
            self._defend(state)
        elif known is None or known.is_older_than(state):
            if known is None and len(self.known) >= self._nodes_max:
                self._forget_unreachable()
            if known is None:
                self.known[state.node] = KnownNode(state)
            else:
                known.update_links(state)
            self._changed_nodes.add(state.node)
            self._changed()
            self._flood(state, peer)

    def _defend(self, state: LinkState) -> None:
        """A message about this node is newer than its own state: its clock was ahead before a restart. Become newer."""
        own = self.known[self.name]
        if own.is_older_than(state):
            own.outdo_links(state)
            self._flood(own.state, "")
            self._flood(self._whole(self.name), "")

    def _forget_unreachable(self) -> None:
        """Too many nodes are known: forget those that can't be reached."""
        reachable = self.reachable()
        for name in [name for name in self.known if name != self.name and name not in reachable]:
            self._changed_nodes.add(name)
            for pattern, mode in self.known.pop(name).interests:
                if mode in self._index:
                    self._index[mode].remove(Pattern(pattern), name)

    def _changed(self) -> None:
        self._graph = None
        self._ways.clear()
        self._effects.append(Rerouted(True))

    # -- subscriptions

    def _own(self, added: list[Interest], removed: list[Interest]) -> None:
        own = self.known[self.name]
        before = set(own.interests)
        for interest in added:
            self._counts[interest] = self._counts.get(interest, 0) + 1
            own.interests.add(interest)
        for interest in removed:
            self._counts[interest] -= 1
            if not self._counts[interest]:
                del self._counts[interest]
                own.interests.discard(interest)
        new, gone = own.interests - before, before - own.interests
        if new or gone:
            own.change_interests()
            self._flood(Announce(self.name, own.instance, own.seq, sorted(new), sorted(gone)), "")

    def _announce(self, news: Announce, peer: str) -> None:
        known = self.known.get(news.node)
        if news.node == self.name:
            own = self.known[self.name]
            if (news.instance, news.seq) > (own.instance, own.seq):
                own.outdo_interests(news.instance, news.seq)
                self._flood(self._whole(self.name), "")
            return
        if known is None:
            self._effects.append(SendToNeighbour(peer, AskWhole(news.node)))
            return
        if (news.instance, news.seq) <= (known.instance, known.seq):
            return
        follows = news.instance == known.instance and news.seq == known.seq + 1
        if not news.is_whole and not follows:
            self._effects.append(SendToNeighbour(peer, AskWhole(news.node)))
            return
        wanted = set(news.added)
        if not news.is_whole:
            wanted = (known.interests | wanted) - set(news.removed)
        self._replace(news, known, wanted)
        self._flood(news, peer)

    def _replace(self, news: Announce, known: KnownNode, wanted: set[Interest]) -> None:
        for pattern, mode in known.interests - wanted:
            if mode in self._index:
                self._index[mode].remove(Pattern(pattern), news.node)
        for pattern, mode in wanted - known.interests:
            if mode in self._index:
                self._index[mode].add(Pattern(pattern), news.node)
        # Events were passed over while this node, after a restart of its own, did not know the subscriptions of
        # another yet; and while a subscriber without a name did not come back yet after a restart of its node.
        met = "" if known.is_met else news.node
        were_unknown = bool(met or known.interests_before & wanted)
        known.update_interests(news.instance, news.seq, wanted)
        self._changed_nodes.add(news.node)
        self._effects.append(Rerouted(were_unknown, met))

    # -- messages

    def _flood(self, message: Message, but: str) -> None:
        self._effects += [SendToNeighbour(name, message) for name in sorted(self._links) if name != but]

    def _whole(self, node: str) -> Announce:
        known = self.known[node]
        return Announce(node, known.instance, known.seq, sorted(known.interests), is_whole=True)

    def _tell_whole(self, node: str, peer: str) -> None:
        known = self.known.get(node)
        if known is not None and peer in self._links:
            self._effects.append(SendToNeighbour(peer, known.state))
            if known.instance:
                self._effects.append(SendToNeighbour(peer, self._whole(node)))

    def _versions(self) -> list[VersionRow]:
        return [
            (
                name,
                known.state.instance,
                known.state.seq,
                known.seq if known.instance == known.state.instance else 0,
            )
            for name, known in sorted(self.known.items())
        ]

    def _compare(self, rows: list[VersionRow], peer: str) -> None:
        """Request the full state of every node that the neighbour knows better."""
        for name, instance, seq, subscriptions in rows:
            known = self.known.get(name)
            if known is None:
                self._effects.append(SendToNeighbour(peer, AskWhole(name)))
                continue
            ours = known.seq if known.instance == instance else 0
            newer = (instance, seq) > (known.state.instance, known.state.seq)
            if newer or (instance >= known.state.instance and subscriptions > ours):
                self._effects.append(SendToNeighbour(peer, AskWhole(name)))


_: type[Machine[Input, Effect]] = Routes
