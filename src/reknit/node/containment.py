"""An error that is nobody's fault but the node's: it is reported once, with an id, and ends no more than it has to.

An error while a message of a peer is handled ends that peer's connection with INTERNAL and the id. An effect that fails
ends the connection of the peer that it was for. Everything else goes on.
"""

from __future__ import annotations

import asyncio

from reknit import environment
from reknit.node.core.failures import EffectsFailed
from reknit.node.peers.peers import Peers, PeerState
from reknit.outcome import Code


class Containment:
    """Reports the errors of one node to its event loop's handler, which logs them."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def report(self, what: str, error: Exception) -> None:
        """Report an error, or those of several effects, each of which ends the connection of its peer."""
        if not isinstance(error, EffectsFailed):
            self.failed(what, error)
            return
        for effect, cause in error.failures:
            peer = self._peers.get(getattr(effect, "peer", None))
            self.failed(f"{type(effect).__name__} {what}", cause, peer)

    def failed(self, what: str, error: Exception, peer: PeerState | None = None) -> None:
        """Report an error, and end the connection of the peer that it is about."""
        number = environment.token_hex(4)
        whom = "" if peer is None else f" for {peer}"
        message = f"internal error {number}: {what}{whom} failed: {error!r}"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        if peer is not None:
            peer.dismiss(Code.INTERNAL, f"internal error {number}: the node's log says more")
