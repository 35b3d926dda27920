"""The datagrams that a member receives: what is in them, and which are refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reknit.errors import MalformedFrame
from reknit.frame import Buffer
from reknit.trust.refusals import Refusals
from reknit.wire.bundle import Item, is_for, unbundle, unbundle_items
from reknit.wire.sealed import is_sealed

if TYPE_CHECKING:
    from reknit.protocol.sealing.seal import Seal

MALFORMED: Final = "malformed"
MISDIRECTED: Final = "misdirected"
SEALED: Final = "sealed"
_WHY: Final = {
    "plain": "is not sealed with a key, and this member has one",
    "unknown_key": "is sealed with a key that this member does not have",
    "forged": "was not sealed with the key that it names, or was changed on the way",
    "replayed": "came before, or is too old to tell",
    MISDIRECTED: "was meant for another member",
    MALFORMED: "is not a group's datagram",
    SEALED: "is sealed with a key, and this member has none: set group.key_file",
}
"""What a line in the log says."""


class IncomingDatagrams:
    """Reads datagrams, with a seal if the member has keys. Refusals are counted, and logged at a limited rate."""

    def __init__(self, name: str, group: int, me: bytes, seal: Seal | None) -> None:
        self.refused: Counter[str] = Counter()
        """Datagrams by why they were refused."""
        self._name, self._group, self._me, self._seal = name, group, me, seal
        self._refusals = Refusals()

    def read(self, data: Buffer, address: tuple[str, int]) -> tuple[bytes, list[Item]] | None:
        """A datagram's sender and items; None if there is nothing to do."""
        try:
            if self._seal is None and is_for(data, self._me):
                return unbundle(data, self._group)
            if self._seal is None:
                self._refuse(MISDIRECTED, address)
                return None
            opened = self._seal.open(data)
            if opened.sender:
                return opened.sender, unbundle_items(opened.items, opened.sender, opened.stable)
            if opened.verdict is not type(opened.verdict).IGNORED:
                self._refuse(opened.verdict.value, address)
        except MalformedFrame:
            self._refuse(SEALED if self._seal is None and is_sealed(data) else MALFORMED, address)
        return None

    def _refuse(self, why: str, address: tuple[str, int]) -> None:
        self.refused[why] += 1
        text = f"a datagram of {address[0]}:{address[1]} in group {self._name!r} {_WHY[why]}"
        self._refusals.report(self._name, why, text)
