"""A place in a node's journal as text: what `kn_route_checkpoint`, `Last-Event-ID` and `checkpoint` carry."""

from __future__ import annotations

import re

import msgspec

from reknit.errors import InvalidCheckpoint

_FORM = re.compile(r"([0-9a-f]{1,64})-(\d{1,19})-(\d{1,7})\Z")


class Place(msgspec.Struct, frozen=True, order=True):
    """Behind everything before `position` and the first `index` events of the batch there.

    The epoch says which journal: positions of another one, or from before its data was lost, mean nothing here.

    >>> Place("a1", 4096, 2).text
    'a1-4096-2'
    >>> Place.parse("a1-4096-2")
    Place(epoch='a1', position=4096, index=2)
    """

    epoch: str
    position: int
    index: int = 0

    @property
    def text(self) -> str:
        return f"{self.epoch}-{self.position}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises `InvalidCheckpoint`."""
        found = _FORM.match(text)
        if found is None:
            raise InvalidCheckpoint(text, "is none of this server's; use one as it was given")
        return cls(found[1], int(found[2]), int(found[3]))
