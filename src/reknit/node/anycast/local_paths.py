"""The paths that end on this node: subscribers over connections, and gateways' receivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit import environment
from reknit.node.anycast.neighbours import Neighbours
from reknit.node.anycast.outcome_notifier import OutcomeNotifier
from reknit.protocol.anycast.inputs import Attach, Detach, Input
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.machine import Peer
from reknit.topic import Pattern


class LocalPaths:
    """Feeds the machine. All nodes are told which patterns this node has subscribers for."""

    def __init__(
        self,
        machine: AnycastMachine,
        *,
        neighbours: Neighbours,
        notifier: OutcomeNotifier,
        run_machines: Callable[[], None],
    ) -> None:
        self.machine = machine
        self._neighbours = neighbours
        self._notifier = notifier
        self._run_machines = run_machines
        self._loop = asyncio.get_running_loop()
        self._stream_takers: set[Peer] = set()
        self._is_scheduled = False

    def attach(self, key: Peer, message: Attach) -> None:
        """A new path: all nodes are told."""
        if message.takes_streams:
            self._stream_takers.add(key)
        self._neighbours.interest(self._interests(key, message.pattern), [])
        self.give(message, key)
        self._notifier.paths_changed()

    def detach(self, key: Peer, pattern: Pattern, is_clean: bool) -> None:
        """A path is gone."""
        self._neighbours.interest([], self._interests(key, pattern))
        self._stream_takers.discard(key)
        self.give(Detach(is_clean), key)
        self._notifier.paths_changed()

    def _interests(self, key: Peer, pattern: Pattern) -> list[tuple[str, str]]:
        modes = ("any", "stream") if key in self._stream_takers else ("any",)
        return [(pattern.text, mode) for mode in modes]

    def give(self, message: Input, peer: Peer) -> None:
        """Feed the machine; its effects are performed in this turn of the event loop, or the next."""
        self.machine.receive(message, peer, now())

    def soon(self) -> None:
        """Perform the machine's effects in the next turn: for calls that don't come from a connection."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._run_machines()


def now() -> float:
    """The event loop's clock, which may be coarser."""
    return environment.monotonic()
