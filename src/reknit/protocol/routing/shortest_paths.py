"""Shortest routes through a graph of nodes, with the same tie-break on every node.

A link counts only if both ends report it, and its cost is the higher of the two. Among routes of equal cost the one
with fewer links wins, then the one whose nodes' names come first. A route may end at an edge node, and never passes
through one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import NamedTuple

from reknit.wire.links import LinkState

Graph = dict[str, dict[str, int]]


class NodeRoute(NamedTuple):
    """The route to a node: its cost, the first node on it, and the last one before its end."""

    cost: int
    first: str
    before: str


def graph_of(states: Mapping[str, LinkState], both: bool = True) -> Graph:
    """The links that both ends report; with `both` False, those that at least one end reports.

    >>> a = LinkState("a", 1, 1, {"b": 2, "c": 1})
    >>> b = LinkState("b", 1, 1, {"a": 5})
    >>> graph_of({"a": a, "b": b})
    {'a': {'b': 5}, 'b': {'a': 5}}
    """
    graph: Graph = {name: {} for name in states}
    for name, state in states.items():
        for other, cost in state.links.items():
            back = states[other].links.get(name) if other in states else None
            if other in states and (back is not None or not both):
                graph[name][other] = graph[other][name] = max(cost, back or 0)
    return graph


def shortest(
    graph: Graph, start: str, edges: Collection[str] = (), without: Collection[str] = ()
) -> dict[str, NodeRoute]:
    """The route to every node that can be reached from `start`, not through (nor to) the nodes in `without`.

    >>> graph = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "d": 1}, "c": {"a": 1, "d": 1}, "d": {"b": 1, "c": 1}}
    >>> shortest(graph, "a")["d"]
    NodeRoute(cost=2, first='b', before='b')
    >>> shortest(graph, "a", without={"b"})["d"]
    NodeRoute(cost=2, first='c', before='c')
    """
    routes: dict[str, NodeRoute] = {}
    done: set[str] = {start, *without}
    heap: list[tuple[int, int, tuple[str, ...]]] = []
    _reach(graph, heap, done, 0, (), start)
    while heap:
        cost, hops, path = heapq.heappop(heap)
        name = path[-1]
        if name in done:
            continue
        done.add(name)
        routes[name] = NodeRoute(cost, path[0], path[-2] if hops > 1 else start)
        if name not in edges:
            _reach(graph, heap, done, cost, path, name)
    return routes


def _reach(
    graph: Graph,
    heap: list[tuple[int, int, tuple[str, ...]]],
    done: set[str],
    cost: int,
    path: tuple[str, ...],
    name: str,
) -> None:
    for other, step in graph.get(name, {}).items():
        if other not in done:
            heapq.heappush(heap, (cost + step, len(path) + 1, (*path, other)))
