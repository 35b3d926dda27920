"""Which batches stay at their publisher for now: those for a full queue, or whose dead letters fill their store."""

from __future__ import annotations

from collections.abc import Callable

from reknit.batch import Head
from reknit.frame import Buffer
from reknit.protocol.machine import Peer
from reknit.wire.codec import Frames

RefuseTopic = Callable[[str, int], str]
"""Why events with this topic and priority have to wait; empty if they need not."""
RefusePeer = Callable[[Peer, str], str]
"""Why events of this peer with this topic have to wait; empty if they need not."""


class Withholding:
    """Splits what arrives into batches that are taken and batches that wait, with all later ones of their source."""

    def __init__(self) -> None:
        self.queues: RefuseTopic | None = None
        self.letters: RefusePeer | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything has to wait."""
        return self.queues is not None or self.letters is not None

    def split(self, frames: Frames, peer: Peer) -> tuple[Frames, list[Head], dict[bytes, str]]:
        """The batches that are taken, those that are not, and why, by source."""
        held: dict[bytes, str] = {}
        pieces: list[Buffer] = []
        taken: list[Head] = []
        away: list[Head] = []
        at = 0
        for head in frames.heads:
            if head.source in held or (text := self._why(head, peer)):
                held.setdefault(head.source, text)
                away.append(head)
            else:
                pieces.append(frames.data[at : at + head.length])
                taken.append(head)
            at += head.length
        return (Frames(b"".join(pieces), taken), away, held) if away else (frames, away, held)

    def _why(self, head: Head, peer: Peer) -> str:
        text = self.queues(head.topic, head.priority) if self.queues is not None else ""
        return text or (self.letters(peer, head.topic) if self.letters is not None else "")
