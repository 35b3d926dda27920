"""Passes the replies of a further node to the machine whose search asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reknit.batch import Batch
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache_inputs import (
    Remote,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
)
from reknit.seqset import Range
from reknit.wire.recovery import Span


class RemoteReplies:
    """The replies to one search, as inputs of its machine."""

    def __init__(self, search: int, reply: Callable[[Remote, Peer], None]) -> None:
        self._search = search
        self._reply = reply

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """A node sent these batches."""
        self._reply(RemoteFound(self._search, batches), cache)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """A node has sent everything that it holds of these ranges."""
        self._reply(RemoteAnswered(self._search, number, covered, is_last), cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """A node listed the ranges that it holds."""
        self._reply(RemoteListed(self._search, spans, is_last), cache)

    def unreachable(self, cache: Peer) -> None:
        """A node can't be reached for now."""
        self._reply(RemoteUnreachable(self._search), cache)
