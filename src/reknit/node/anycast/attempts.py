"""The attempts at events on one node: the ended ones, from its trail, and the open ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reknit import environment
from reknit.node.anycast.trail import PathAttempt, Trail
from reknit.outcome import Outcome
from reknit.protocol.anycast.inputs import AttemptEnded
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.routing.routes import Routes


class NodeAttempts:
    """The attempts that one node remembers."""

    def __init__(
        self,
        machine: AnycastMachine,
        *,
        attempts_max: int,
        node_name: str,
        routes: Routes,
        url_of: Callable[[str], str],
    ) -> None:
        self._machine = machine
        self._node_name = node_name
        self._routes = routes
        self._url_of = url_of
        self._trail = Trail(attempts_max)
        # The closest pair of several readings of both clocks, so that nodes agree on the order of attempts.
        self._zero_us = max(environment.time_us() - int(environment.monotonic() * 1e6) for _ in range(9))

    def _time_us(self, at: float) -> int:
        return self._zero_us + int(at * 1e6)

    def add(self, tried: AttemptEnded) -> None:
        """An attempt ended."""
        sent_us = self._time_us(tried.sent_at)
        self._trail.add(
            PathAttempt(
                topic=tried.topic,
                source=tried.source,
                start=tried.start,
                stop=tried.stop,
                node=self._node_name,
                path=tried.path,
                is_node=tried.path in self._routes.known,
                sent_us=sent_us,
                ended_us=max(environment.time_us(), sent_us),
                outcome=tried.outcome,
                text=tried.text,
            )
        )

    def of(self, source: bytes, seq: int) -> dict[str, Any]:
        """The attempts at one event, the open ones last, and the addresses of the nodes that it was forwarded to."""
        attempts = [*self._trail.of(source, seq), *self._open(source, seq)]
        urls = {one.path: self._url_of(one.path) for one in attempts if one.is_node}
        return {"node": self._node_name, "attempts": [one.row() for one in attempts], "urls": urls}

    def _open(self, source: bytes, seq: int) -> list[PathAttempt]:
        return [
            PathAttempt(
                one.topic,
                source,
                one.start,
                one.stop,
                self._node_name,
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
