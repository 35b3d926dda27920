"""How many files, including connections, this process may have open."""

from __future__ import annotations

import contextlib
from typing import Final

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

UNLIMITED: Final = 1 << 30


def files_max() -> int:
    """How many files may be open at a time.

    >>> 0 < files_max() <= UNLIMITED
    True
    """
    if resource is None:
        return UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


def raise_files_max() -> int:
    """Raise the limit as far as the system allows; returns the new limit.

    The soft limit is often 1,024 for programs that use select(). A node does not use it.

    >>> raise_files_max() == files_max()
    True
    """
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return files_max()
