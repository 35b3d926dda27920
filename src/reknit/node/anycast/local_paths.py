"""The paths that end on this node: subscribers over connections, and gateways' receivers."""

from __future__ import annotations

from collections.abc import Callable

from reknit.node.anycast.outcome_notifier import OutcomeNotifier
from reknit.node.core.parts import Parts
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import Attach, Detach, Input
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.machine import Peer
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import Interests
from reknit.topic import Pattern


class LocalPaths:
    """Feeds the machine. All nodes are told which patterns this node has subscribers for."""

    def __init__(
        self,
        machine: AnycastMachine,
        *,
        parts: Parts,
        notifier: OutcomeNotifier,
        run_soon: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self._parts = parts
        self._notifier = notifier
        self.soon = run_soon
        """Perform the machine's effects in the next turn: for calls that don't come from a connection."""
        self.now = clock
        self._stream_takers: set[Peer] = set()

    def attach(self, key: Peer, message: Attach) -> None:
        """A new path: all nodes are told."""
        if message.takes_streams:
            self._stream_takers.add(key)
        self._announce(self._interests(key, message.pattern), [])
        self.give(message, key)
        self._notifier.paths_changed()

    def detach(self, key: Peer, pattern: Pattern, is_clean: bool) -> None:
        """A path is gone."""
        self._announce([], self._interests(key, pattern))
        self._stream_takers.discard(key)
        self.give(Detach(is_clean), key)
        self._notifier.paths_changed()

    def _announce(self, added: list[Interest], removed: list[Interest]) -> None:
        self._parts.give(Interests(added, removed), HERE, self.now())

    def _interests(self, key: Peer, pattern: Pattern) -> list[Interest]:
        modes = ("any", "stream") if key in self._stream_takers else ("any",)
        return [(pattern.text, mode) for mode in modes]

    def give(self, message: Input, peer: Peer) -> None:
        """Feed the machine; its effects are performed in this turn of the event loop, or the next."""
        self.machine.receive(message, peer, self.now())
