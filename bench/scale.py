"""Large fabrics: what it costs to keep the routes of 10, 100 and 1,000 nodes, without any events.

python -m bench.scale --nodes 10 100 1000

All nodes are in this process: the machine of routes that a node runs, and the moments at which it looks at its routes
again. Each node has four links on average, and each message takes one hop in a millisecond of virtual time. Messages
and bytes are counted, so they are the same in every run; CPU time is that of this machine.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

from reknit.protocol.links.route_review import RouteReview
from reknit.protocol.routing.routes import (
    Interests,
    LinkDown,
    LinkUp,
    Rerouted,
    Routes,
    SendToNeighbour,
)
from reknit.wire.codec import encode

LINKS_PER_NODE = 4
HOP_S, BEAT_S = 0.001, 1.0
START_S, REST_S, CHANGE_S = 6.0, 10.0, 0.5
HEAD = ("nodes", "what", "messages a node", "KiB a node", "CPU ms a node", "hops")


class ManyNodes:
    """Nodes with their links, and the messages between them, hop by hop."""

    def __init__(self, count: int) -> None:
        self.names = [f"node-{number:04}" for number in range(count)]
        self.routes = {
            name: Routes(name, 1_700_000_000_000_000 + at, BEAT_S, nodes_max=count + 1)
            for at, name in enumerate(self.names)
        }
        self.links = links_of(count)
        self._reviews = {name: RouteReview() for name in self.names}
        self._under_way: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self.now = 0.0
        self.messages = self.bytes = self.hops = 0

    def subscribe(self, at: int, pattern: str) -> None:
        """A node gets a subscriber."""
        self._give(self.names[at], Interests([(pattern, "journal")], []), self.names[at])

    def link(self, pair: tuple[int, int]) -> None:
        """Two nodes are linked."""
        self._tell_both(pair, LinkUp(1))

    def cut(self, pair: tuple[int, int]) -> None:
        """The link between two nodes is lost."""
        self._tell_both(pair, LinkDown())

    def _tell_both(self, pair: tuple[int, int], message: LinkUp | LinkDown) -> None:
        one, two = (self.names[at] for at in pair)
        self._give(one, message, two)
        self._give(two, message, one)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now = self.now + HOP_S if self._under_way else min(max(self._next_due(), self.now), end)
            arrived, self._under_way = self._under_way, defaultdict(list)
            self.hops += bool(arrived)
            for name, items in arrived.items():
                for sender, message in items:
                    self.routes[name].receive(message, sender, self.now)
                self._perform(name)
            for name in self.names:
                due = self._due(name)
                if due is not None and due <= self.now:
                    self.routes[name].tick(self.now)
                    self._perform(name)

    def _next_due(self) -> float:
        return min(due for name in self.names if (due := self._due(name)) is not None)

    def _due(self, name: str) -> float | None:
        due = [self.routes[name].next_deadline(), self._reviews[name].next_deadline()]
        return min((one for one in due if one is not None), default=None)

    def _give(self, name: str, message: Any, peer: str) -> None:
        self.routes[name].receive(message, peer, self.now)
        self._perform(name)

    def _perform(self, name: str) -> None:
        routes, review = self.routes[name], self._reviews[name]
        sizes: dict[int, int] = {}
        effects = routes.take_effects()
        for effect in effects:
            if isinstance(effect, SendToNeighbour):
                message = effect.message
                self.messages += 1
                size = sizes.get(id(message)) or sizes.setdefault(id(message), len(encode(message)))
                self.bytes += size
                self._under_way[str(effect.peer)].append((name, message))
            elif isinstance(effect, Rerouted):
                review.changed(has_new_routes=effect.has_new_routes, now=self.now)
        if review.take(self.now) is not None:
            routes.reachable()

    def take_row(self, what: str, cpu_s: float, seconds: float = 1.0) -> tuple[str, ...]:
        """What was counted since the last row, for each node; and for each second, if it took some."""
        share = len(self.names) * seconds
        row = (
            f"{len(self.names):,}",
            what,
            f"{self.messages / share:,.1f}",
            f"{self.bytes / share / 1024:,.2f}",
            f"{cpu_s * 1000 / share:,.2f}",
            f"{self.hops:,}" if seconds == 1.0 else "",
        )
        self.messages = self.bytes = self.hops = 0
        return row


def links_of(count: int) -> list[tuple[int, int]]:
    """A ring with chords, so that nothing is cut off when one link is lost."""
    rng = Random(count)
    links = {(at, at + 1) for at in range(count - 1)} | {(0, count - 1)}
    while len(links) < count * LINKS_PER_NODE // 2:
        one, two = rng.sample(range(count), 2)
        links.add((min(one, two), max(one, two)))
    return sorted(links)


def measure(count: int) -> list[tuple[str, ...]]:
    """The rows of a fabric of so many nodes."""
    rows = []
    began, held = time.process_time(), rss()
    fabric = ManyNodes(count)
    for at in range(count):
        fabric.subscribe(at, f"plant/{at}/**")
    for pair in fabric.links:
        fabric.link(pair)
    fabric.run(START_S)
    assert all(len(routes.reachable()) == count - 1 for routes in fabric.routes.values())
    rows.append(fabric.take_row("all start at once", time.process_time() - began))
    memory = f"{(rss() - held) / count / 1024:,.0f} KiB"
    began = time.process_time()
    fabric.run(REST_S)
    rows.append(fabric.take_row("a second at rest", time.process_time() - began, REST_S))
    began = time.process_time()
    fabric.cut(fabric.links[count // 2])
    fabric.run(CHANGE_S)
    rows.append(fabric.take_row("a link is lost", time.process_time() - began))
    began = time.process_time()
    fabric.subscribe(count // 3, "new/**")
    fabric.run(CHANGE_S)
    assert all(
        routes.destinations("new/1", "journal")
        for name, routes in fabric.routes.items()
        if name != fabric.names[count // 3]
    )
    rows.append(fabric.take_row("a subscriber comes", time.process_time() - began))
    rows.append((f"{count:,}", f"memory of a node's map: {memory}", "", "", "", ""))
    return rows


def rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100], metavar="N", help="how many nodes")
    print("| " + " | ".join(HEAD) + " |")
    print("|---:|---|---:|---:|---:|---:|")
    for count in parser.parse_args(arguments).nodes:
        for row in measure(count):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
