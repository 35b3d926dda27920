"""Sources that outlive the programs that publish as them, each tied to one journal.

A publisher with a name has no memory of its own: it continues where its node says. So its source must be one that only
this journal numbers. The journal's epoch is part of it: a node that forgot its events, because its journal was in memory
or its data directory was emptied, has another epoch, and a publisher begins another source there. No seq is ever used
for two events.
"""

from __future__ import annotations

from typing import Final

import xxhash

__all__ = ["FORGOTTEN", "lasting_source"]

FORGOTTEN: Final = "the node had acknowledged it, and forgot it"
"""Why an event is lost that a publisher no longer holds, and its node no longer has."""


def lasting_source(lineage: str, epoch: str) -> bytes:
    """The source of a lineage, such as a program's name and a topic, in the journal with this epoch.

    >>> lasting_source("boiler", "e1") == lasting_source("boiler", "e1")
    True
    >>> lasting_source("boiler", "e1") == lasting_source("boiler", "e2")
    False
    """
    return xxhash.xxh3_128_digest(f"{lineage}\0{epoch}".encode())
