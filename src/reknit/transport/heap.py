"""Reusing freed memory."""

from __future__ import annotations

from functools import cache
from typing import Final

KEPT_BYTES: Final = 16 << 20
"""About how much freed memory the process retains for reuse."""


@cache
def keep_heap() -> None:
    """Retain freed memory for reuse instead of returning it to the system: batches come and go by the megabyte.

    glibc returns freed memory above a threshold, and raises the threshold to twice the largest block of up to 32 MiB
    that was ever freed. The block here is never written, so it takes no memory itself. That is so only the first time:
    later ones would be taken from memory that was used before, and filled with zeros.
    """
    bytes(KEPT_BYTES)
