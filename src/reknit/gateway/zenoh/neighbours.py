"""The gateways of other nodes in the same Zenoh network. Nodes that are linked share the work: nothing is doubled.

Each gateway declares a liveliness token, and names its node in the tokens of its publishers. Of the nodes that are
linked with each other,

- the node that a source publishes on puts its events into Zenoh; if it is not there, the one whose name is lowest;
- nobody takes what another one of them has put: it comes over a link;
- the one whose name is lowest takes samples without source information. Numbered ones are the same events everywhere.
"""

from __future__ import annotations

import threading
from typing import Final

import zenoh

from reknit.gateway.zenoh.keys import gateway_of
from reknit.node.api import LinkedNodes

GATEWAYS_MAX: Final = 1_024
"""More tokens of gateways are left out."""


class ZenohNeighbours:
    """Which gateways are there, and what this one leaves to them."""

    def __init__(self, node_name: str, links: LinkedNodes) -> None:
        self._node_name = node_name
        self._links = links
        self._lock = threading.Lock()
        self.present: frozenset[str] = frozenset()
        """The nodes whose gateways are there, without this one."""

    def on_token(self, token: zenoh.Sample) -> None:
        """On a reader's thread: a gateway came or went."""
        name = gateway_of(str(token.key_expr))
        if not name or name == self._node_name:
            return
        with self._lock:
            if token.kind == zenoh.SampleKind.PUT:
                if len(self.present) < GATEWAYS_MAX:
                    self.present |= {name}
            else:
                self.present -= {name}

    def is_linked(self, node: str) -> bool:
        """Whether what a node has comes over links."""
        return node != self._node_name and self._links.knows(node)

    def _is_first(self) -> bool:
        return all(self._node_name < name for name in self.present if self.is_linked(name))

    def puts(self, source: bytes) -> bool:
        """Whether this gateway puts the events of a source into Zenoh."""
        origin = self._links.origin(source)
        if origin == self._node_name:
            return True
        return origin not in self.present and self._is_first()

    def takes_unnumbered(self) -> bool:
        """Whether this gateway takes samples without source information."""
        return self._is_first()
