"""A place in a node's journal as text: what `kn_route_checkpoint`, `Last-Event-ID` and `checkpoint` carry."""

from __future__ import annotations

import re

import msgspec

from reknit.errors import InvalidCheckpoint

_FORM = re.compile(r"([0-9a-f]{1,64})-(\d{1,19})-(\d{1,7})\Z")


class JournalPlace(msgspec.Struct, frozen=True, order=True):
    """A place in a journal: after everything before `position`, and the first `index` events of the batch there.

    The epoch names the journal: positions of another journal, or from before its data was lost, mean nothing here.

    >>> JournalPlace("a1", 4096, 2).text
    'a1-4096-2'
    >>> JournalPlace.parse("a1-4096-2")
    JournalPlace(epoch='a1', position=4096, index=2)
    """

    epoch: str
    position: int
    index: int = 0

    @property
    def text(self) -> str:
        return f"{self.epoch}-{self.position}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> JournalPlace:
        """Raises `InvalidCheckpoint`."""
        found = _FORM.match(text)
        if found is None:
            raise InvalidCheckpoint(
                text, "is not a checkpoint of this server; pass one that this server sent, unchanged"
            )
        return cls(found[1], int(found[2]), int(found[3]))
