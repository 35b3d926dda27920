"""A source as an entity of the Zenoh network, the same over restarts and on every node.

The 16 bytes of a source are Zenoh's session id, and its seqs are Zenoh's numbers. So an advanced subscriber goes on
where it was when a gateway was killed and is back, and drops what two gateways put.
"""

from __future__ import annotations

import json
import threading
from typing import Final

import zenoh

from reknit.batch import SOURCE_BYTES

EID: Final = 1
"""The entity that a session is itself: of every source the same."""
IDS_MAX: Final = 65_536


def zid_of(source: bytes) -> str:
    """The session id that stands for a source, as Zenoh writes it.

    >>> zid_of(bytes([1]) + bytes(14) + bytes([0x20])), source_of_zid("20000000000000000000000000000001")[0]
    ('20000000000000000000000000000001', 1)
    """
    return f"{int.from_bytes(source, 'little') or 1:x}"


def source_of_zid(zid: str) -> bytes:
    """The source that a session id stands for. Raises `ValueError` if it is none."""
    number = int(zid, 16)
    if number >> (8 * SOURCE_BYTES):
        raise ValueError(zid)
    return number.to_bytes(SOURCE_BYTES, "little")


class EntityIds:
    """The ids of sources as Zenoh's own objects, which carry them in samples. Several threads may ask at once."""

    def __init__(self) -> None:
        self._known: dict[bytes, zenoh.EntityGlobalId] = {}
        self._lock = threading.Lock()

    def of(self, source: bytes) -> zenoh.EntityGlobalId:
        """Blocking: the id of a source. Zenoh makes ids for sessions only: one is opened, without a network."""
        with self._lock:
            found = self._known.get(source)
            if found is None:
                while len(self._known) >= IDS_MAX:
                    self._known.pop(next(iter(self._known)))
                found = self._known[source] = _make(zid_of(source))
        return found


def _make(zid: str) -> zenoh.EntityGlobalId:
    config = zenoh.Config()
    settings: dict[str, object] = {
        "id": zid,
        "mode": "peer",
        "listen/endpoints": [],
        "connect/endpoints": [],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    with zenoh.open(config) as session:
        return session.id
