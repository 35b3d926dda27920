"""What a node knows of the others: which links there are and what they cost, who subscribes to what, and so which way
anything goes.

Every change is passed on at once to all neighbours that may not know it. Each message carries its node's instance (when
it started) and a seq: old news changes nothing, and a gap asks for the whole. Beats, which neighbours exchange anyway to
notice a loss, say how much each side knows, so that whatever got lost is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never, get_args

import msgspec

from reknit.protocol.machine import Peer
from reknit.protocol.routing.shortest_paths import Graph, Way, graph_of, shortest
from reknit.topic import Pattern
from reknit.topic_index import TopicIndex
from reknit.wire.links import Announce, AskWhole, Beat, LinkState
from reknit.wire.messages import Message

WAYS_MAX: Final = 1024
"""So many answers to 'which way, without these nodes' are remembered."""

Mode = Literal["journal", "any", "stream"]
Interest = tuple[str, str]
"""(pattern, mode)."""


class LinkUp(msgspec.Struct, frozen=True):
    """A neighbour is there: its link's cost from here."""

    cost: int


class LinkDown(msgspec.Struct, frozen=True):
    """The connection to a neighbour is gone."""


class Interests(msgspec.Struct, frozen=True):
    """Subscriptions of this node itself came and went."""

    added: list[Interest]
    removed: list[Interest] = []


class Tell(msgspec.Struct, frozen=True):
    """Say this to a neighbour."""

    peer: Peer
    message: Message


class Drop(msgspec.Struct, frozen=True):
    """A neighbour gave no sign for too long: close the connection to it."""

    peer: Peer


class Rerouted(msgspec.Struct, frozen=True):
    """Ways changed, or only subscriptions of others."""

    has_new_ways: bool


Input = LinkUp | LinkDown | Interests | LinkState | Announce | AskWhole | Beat
Effect = Tell | Drop | Rerouted


@dataclass(slots=True)
class Known:
    """What is known of one node."""

    state: LinkState
    instance: int = 0
    """Of its subscriptions."""
    seq: int = 0
    interests: set[Interest] = field(default_factory=set)


class Routes:
    """One node's view of all.

    >>> routes = Routes("a", instance=1)
    >>> routes.receive(LinkUp(cost=1), "b", 0.0)
    >>> routes.receive(LinkState("b", 1, 1, {"a": 1}), "b", 0.0)
    >>> routes.receive(Announce("b", 1, 1, [("plant/**", "any")], is_whole=True), "b", 0.0)
    >>> routes.destinations("plant/temp", "any"), routes.ways()["b"].cost
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
    ) -> None:
        self.name = name
        self._beat_s = beat_s
        self._timeout_s = timeout_s
        self._nodes_max = nodes_max
        self._links: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._beat_at = float("-inf")
        self._counts: dict[Interest, int] = {}
        """How many subscriptions of this node want the same."""
        own = LinkState(name, instance, 1, {}, is_edge)
        self.known: dict[str, Known] = {name: Known(own, instance, 1)}
        self._index: dict[str, TopicIndex[str]] = {mode: TopicIndex() for mode in get_args(Mode)}
        self._graph: Graph | None = None
        self._edges: frozenset[str] = frozenset()
        self._ways: dict[tuple[str, frozenset[str]], dict[str, Way]] = {}
        self._effects: list[Effect] = []

    # -- questions

    def destinations(self, topic: str, mode: Mode) -> tuple[str, ...]:
        """The other nodes that subscribe to a topic, whether they can be reached or not."""
        return self._index[mode].match(topic)

    def ways(self, without: Collection[str] = (), start: str = "") -> dict[str, Way]:
        """The way to every node that can be reached, from here or from another node."""
        key = (start or self.name, frozenset(without))
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            found = self._ways[key] = shortest(self._topology(), key[0], self._edges, key[1])
        return found

    @property
    def has_effects(self) -> bool:
        """Whether there is something to be done."""
        return bool(self._effects)

    def children(self, origin: str, nodes: Iterable[str], with_lost: bool = False) -> dict[str, list[str]]:
        """For what is published on `origin`: the neighbours that get it from here, and for which of these nodes.

        With `lost` ones, what is for a node that can't be reached goes as far as possible on the way where it was.
        """
        live = self.ways(start=origin)
        found: dict[str, list[str]] = {}
        for node in nodes:
            tree = self._ways_before(origin) if with_lost and node not in live else live
            at = node
            while at in tree and tree[at].before != self.name:
                at = tree[at].before
            if at in tree and at in self._links:
                found.setdefault(at, []).append(node)
        return found

    def _ways_before(self, origin: str) -> dict[str, Way]:
        """The ways with links that only one end still knows of."""
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
        """Who is linked to this node, and the cost from here."""
        return self._links

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a neighbour, or about the link to it; `peer` is its name. `Interests` come from this node."""
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
            case Beat(rows=rows):
                self._compare(rows, name)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Beat, and part with neighbours that do not."""
        for name, heard in list(self._heard.items()):
            if now - heard >= self._timeout_s:
                self._effects.append(Drop(name))
                self._down(name)
        if self._links and now >= self._beat_at:
            self._beat_at = now + self._beat_s
            beat = self._beat()
            self._effects += [Tell(name, beat) for name in sorted(self._links)]

    def next_deadline(self) -> float | None:
        """The next beat."""
        return self._beat_at if self._links else None

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
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
        if self._links.pop(name, None) is not None:
            self._own_links()

    def _own_links(self) -> None:
        own = self.known[self.name]
        own.state = msgspec.structs.replace(own.state, seq=own.state.seq + 1, links=dict(self._links))
        self._changed()
        self._flood(own.state, "")

    def _state(self, state: LinkState, peer: str) -> None:
        known = self.known.get(state.node)
        if state.node == self.name:
            self._defend(state.instance, state.seq)
        elif known is None or (state.instance, state.seq) > (known.state.instance, known.state.seq):
            if known is None and len(self.known) >= self._nodes_max:
                self._forget_unreachable()
            if known is None:
                self.known[state.node] = Known(state)
            else:
                known.state = state
            self._changed()
            self._flood(state, peer)

    def _defend(self, instance: int, seq: int) -> None:
        """News of this node that is newer than its own: it ran before, by a clock that was ahead. Go beyond it."""
        own = self.known[self.name]
        if (instance, seq) > (own.state.instance, own.state.seq):
            own.state = msgspec.structs.replace(own.state, instance=instance, seq=seq + 1)
            own.instance = instance
            self._flood(own.state, "")
            self._flood(self._whole(self.name), "")

    def _forget_unreachable(self) -> None:
        """Too many nodes are known: those that can't be reached are forgotten."""
        reachable = self.ways()
        for name in [name for name in self.known if name != self.name and name not in reachable]:
            for pattern, mode in self.known.pop(name).interests:
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
            own.seq += 1
            self._flood(Announce(self.name, own.instance, own.seq, sorted(new), sorted(gone)), "")

    def _announce(self, news: Announce, peer: str) -> None:
        known = self.known.get(news.node)
        if news.node == self.name:
            own = self.known[self.name]
            if (news.instance, news.seq) > (own.instance, own.seq):
                own.instance, own.seq = news.instance, news.seq + 1
                self._flood(self._whole(self.name), "")
            return
        if known is None:
            self._effects.append(Tell(peer, AskWhole(news.node)))
            return
        if (news.instance, news.seq) <= (known.instance, known.seq):
            return
        follows = news.instance == known.instance and news.seq == known.seq + 1
        if not news.is_whole and not follows:
            self._effects.append(Tell(peer, AskWhole(news.node)))
            return
        wanted = set(news.added)
        if not news.is_whole:
            wanted = (known.interests | wanted) - set(news.removed)
        known.instance, known.seq = news.instance, news.seq
        self._replace(news.node, known, wanted)
        self._flood(news, peer)

    def _replace(self, node: str, known: Known, wanted: set[Interest]) -> None:
        for pattern, mode in known.interests - wanted:
            self._index[mode].remove(Pattern(pattern), node)
        for pattern, mode in wanted - known.interests:
            self._index[mode].add(Pattern(pattern), node)
        known.interests = wanted
        self._effects.append(Rerouted(False))

    # -- telling

    def _flood(self, message: Message, but: str) -> None:
        self._effects += [Tell(name, message) for name in sorted(self._links) if name != but]

    def _whole(self, node: str) -> Announce:
        known = self.known[node]
        return Announce(node, known.instance, known.seq, sorted(known.interests), is_whole=True)

    def _tell_whole(self, node: str, peer: str) -> None:
        known = self.known.get(node)
        if known is not None and peer in self._links:
            self._effects.append(Tell(peer, known.state))
            if known.instance:
                self._effects.append(Tell(peer, self._whole(node)))

    def _beat(self) -> Beat:
        return Beat(
            [
                (
                    name,
                    known.state.instance,
                    known.state.seq,
                    known.seq if known.instance == known.state.instance else 0,
                )
                for name, known in sorted(self.known.items())
            ]
        )

    def _compare(self, rows: list[tuple[str, int, int, int]], peer: str) -> None:
        """Ask for whatever the neighbour knows better."""
        for name, instance, seq, subscriptions in rows:
            known = self.known.get(name)
            if known is None:
                self._effects.append(Tell(peer, AskWhole(name)))
                continue
            ours = known.seq if known.instance == instance else 0
            newer = (instance, seq) > (known.state.instance, known.state.seq)
            if newer or (instance >= known.state.instance and subscriptions > ours):
                self._effects.append(Tell(peer, AskWhole(name)))
