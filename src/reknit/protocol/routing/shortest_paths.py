"""Shortest ways through a graph of nodes, with one tie-break everywhere.

A link counts only if both ends name it, and costs what the dearer end says. Among ways of equal cost the one with
fewer links wins, then the one whose nodes' names come first. An edge node ends a way and never is in the middle of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import NamedTuple

from reknit.wire.links import LinkState

Graph = dict[str, dict[str, int]]


class Way(NamedTuple):
    """How to get to a node: what it costs, the first node on the way there, and the last before it."""

    cost: int
    first: str
    before: str


def graph_of(states: Mapping[str, LinkState], both: bool = True) -> Graph:
    """The links that both ends know of, or at least one.

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
) -> dict[str, Way]:
    """The way to every node that can be reached from `start`, not through (nor to) the nodes in `without`.

    >>> graph = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "d": 1}, "c": {"a": 1, "d": 1}, "d": {"b": 1, "c": 1}}
    >>> shortest(graph, "a")["d"]
    Way(cost=2, first='b', before='b')
    >>> shortest(graph, "a", without={"b"})["d"]
    Way(cost=2, first='c', before='c')
    """
    ways: dict[str, Way] = {}
    done: set[str] = {start, *without}
    heap: list[tuple[int, int, tuple[str, ...]]] = []
    _reach(graph, heap, done, 0, (), start)
    while heap:
        cost, hops, path = heapq.heappop(heap)
        name = path[-1]
        if name in done:
            continue
        done.add(name)
        ways[name] = Way(cost, path[0], path[-2] if hops > 1 else start)
        if name not in edges:
            _reach(graph, heap, done, cost, path, name)
    return ways


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
