"""Where a subscription resumes after a reconnection: at its position in the same journal, or after its checkpoint."""

from __future__ import annotations

from reknit.wire.messages import Start


class ResumePoint:
    """The place of one subscription in its node's journal."""

    __slots__ = ("_epoch", "_is_overtaken", "_live_epoch", "_position", "_start")

    def __init__(self, start: Start) -> None:
        self._start = start
        self._position = -1
        self._is_overtaken = False
        """Whether events arrived that are behind the position."""
        self._epoch = ""
        """The journal of the present or last connection."""
        self._live_epoch = ""
        """The journal in which the subscription was confirmed last."""

    @property
    def is_new(self) -> bool:
        """Whether the subscription was never confirmed."""
        return self._position < 0

    @property
    def is_other_journal(self) -> bool:
        """Whether the journal is another one than when the subscription was confirmed last."""
        return self._live_epoch != self._epoch

    def connect(self, epoch: str, checkpoint: dict[str, int], is_durable: bool) -> Start:
        """A connection to the journal `epoch` begins; returns where to start."""
        self._epoch = epoch
        if self.is_new:
            return self._start
        if not self.is_other_journal:
            seen = checkpoint if self._is_overtaken and not is_durable else None
            return Start(position=self._position, epoch=epoch, checkpoint=seen)
        return Start(checkpoint=checkpoint)

    def open(self, position: int) -> None:
        """The node confirmed the subscription, which begins at `position`."""
        if self.is_new or self.is_other_journal:  # a position means nothing in another journal
            self._position, self._is_overtaken = position, False
        self._live_epoch = self._epoch

    def move(self, position: int) -> None:
        """Everything before `position` arrived; -1 if some of it comes later."""
        self._is_overtaken = self._is_overtaken or position < 0
        self._position = max(self._position, position)
