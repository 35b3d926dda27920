"""A node's connections to further nodes that hold events, and the journal of what an alignment fetched.

What is asked for, where and when, is decided by `reknit.protocol.recovery.cache_service`, which the core runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.config import Config
from reknit.connection.remote_cache import RemoteCache
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers, PeerState
from reknit.node.recovery.aligned import AlignedEvents
from reknit.node.recovery.remote_replies import RemoteReplies
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache import EventHolder
from reknit.protocol.recovery.cache_inputs import AskRemote, Remote, SurveyRemote
from reknit.trust.own_token import own_token
from reknit.wire.codec import Frames
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Require, Survey, Surveyed

CacheMessage = Recover | Survey | Heartbeat | Offer | Require | Recovered | Surveyed


class NodeCaches:
    """Further nodes, and the events that an alignment fetched; `node.caches`."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        core: Core,
        peers: Peers,
        run_machines: Callable[[], None],
    ) -> None:
        self._config = config
        self._node_name = node_name
        self._recovery = core.recovery
        self._peers = peers
        self._run_machines = run_machines
        self._now = asyncio.get_running_loop().time
        self._remote: dict[str, RemoteCache] = {}
        self.aligned = AlignedEvents(core.journal, config)
        core.recovery.attach(self, [self.aligned])
        for url in config.recovery.caches:
            self.add(url)

    @property
    def keeper(self) -> EventHolder:
        """The events that the node holds itself."""
        return self._recovery.holder

    @property
    def questions(self) -> int:
        """How many recovery requests came: none while nothing is missed."""
        return self._recovery.caches.questions

    def add(self, url: str) -> None:
        """Search at this node, too."""
        if url not in self._remote:
            token = own_token(self._config.security)
            self._remote[url] = RemoteCache(url, self._node_name, self._config, token)
            self._recovery.caches.add_remote(url)

    async def close(self) -> None:
        """Disconnect from further nodes."""
        await asyncio.gather(*(remote.close() for remote in self._remote.values()))
        await self.aligned.close()

    # -- from peers and further nodes

    def take(self, message: CacheMessage, peer: PeerState) -> None:
        """A message about recovery came from a peer."""
        self._recovery.receive(message, peer.id, self._now())

    def take_frames(self, frames: Frames, peer: PeerState, now: float) -> Frames | None:
        """Take the batches that a peer's reply announced; returns the rest, which is published."""
        return self._recovery.caches.take_frames(frames, peer.id, now)

    def _reply(self, message: Remote, url: Peer) -> None:
        self._recovery.receive(message, url, self._now())
        self._run_machines()

    # -- the shell of recovery

    def ask_remote(self, effect: AskRemote) -> None:
        """Ask a further node for events."""
        replies = RemoteReplies(effect.search, self._reply)
        remote = self._remote[effect.url]
        remote.recover(replies, effect.number, effect.series, effect.ranges, effect.bytes_max)

    def survey_remote(self, effect: SurveyRemote) -> None:
        """Ask a further node which events it holds."""
        replies = RemoteReplies(effect.search, self._reply)
        self._remote[effect.url].survey(replies, 0, effect.pattern, effect.age_s)

    def dismiss(self, peer: Peer, code: Code, text: str) -> None:
        """Tell a peer why, and close its connection."""
        if (state := self._peers.get(peer)) is not None:
            state.dismiss(code, text)

    def name_of(self, peer: Peer) -> str:
        """The name under which a peer introduced itself."""
        state = self._peers.get(peer)
        return "" if state is None else state.name
