"""The attempts at events on one node: those that ended, from its trail, and those that are still open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from reknit.node.admin.trail import Attempt, Trail
from reknit.outcome import Outcome
from reknit.protocol.anycast.inputs import AttemptEnded
from reknit.protocol.anycast.machine import AnycastMachine

if TYPE_CHECKING:
    from reknit.node.node import Node


class Attempts:
    """What is known of them on one node."""

    def __init__(self, node: Node, machine: AnycastMachine) -> None:
        self._node = node
        self._machine = machine
        self._trail = Trail(node.config.anycast.trail_attempts_max)
        # The least interrupted of several looks at both clocks, so that nodes agree on what came first.
        self._zero_us = max(time.time_ns() // 1000 - time.monotonic_ns() // 1000 for _ in range(9))

    def _time_us(self, at: float) -> int:
        return self._zero_us + int(at * 1e6)

    def add(self, tried: AttemptEnded) -> None:
        """One ended."""
        what = (tried.topic, tried.source, tried.start, tried.stop)
        is_node = tried.path in self._node.links.routes.known
        sent_us = self._time_us(tried.sent_at)
        when = (sent_us, max(time.time_ns() // 1000, sent_us))
        self._trail.add(
            Attempt(*what, self._node.name, tried.path, is_node, *when, tried.outcome, tried.text)
        )

    def of(self, source: bytes, seq: int) -> dict[str, Any]:
        """Those at one event, those that have not ended last, and where the nodes that it was given to are."""
        attempts = [*self._trail.of(source, seq), *self._open(source, seq)]
        urls = {one.path: self._node.links.url(one.path) for one in attempts if one.is_node}
        return {"node": self._node.name, "attempts": [one.row() for one in attempts], "urls": urls}

    def _open(self, source: bytes, seq: int) -> list[Attempt]:
        return [
            Attempt(
                one.topic,
                source,
                one.start,
                one.stop,
                self._node.name,
                path.name,
                path.is_neighbour,
                self._time_us(one.sent_at),
                0,
                Outcome.RECEIVED if one.is_pinned else 0,
                "",
            )
            for path in self._machine.paths()
            for one in path
            if one.source == source and one.start <= seq < one.stop
        ]
