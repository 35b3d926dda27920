"""How freed memory is used again."""

from __future__ import annotations

from typing import Final

KEPT_BYTES: Final = 16 << 20
"""About so much freed memory stays with the process to be used again."""


def keep_heap() -> None:
    """Batches come and go by the megabyte: let freed memory be used again, not given back and faulted in anew.

    glibc gives freed memory back above a threshold, and raises that to twice the largest block of up to 32 MiB that
    was ever freed. This one is never written to, so that it takes up no memory itself.
    """
    bytes(KEPT_BYTES)
