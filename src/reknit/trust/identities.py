"""Who somebody is, and how they have proven it."""

from __future__ import annotations

from typing import Final, NamedTuple

from reknit.errors import RemoteError
from reknit.trust.rules import ANONYMOUS, ITSELF


class Identity(NamedTuple):
    """A name that somebody has proven.

    >>> str(Identity("ann", "token", "laptop"))
    "ann (token 'laptop')"
    """

    name: str
    """As in the rules."""
    means: str = ""
    """How it was proven: `token`, `certificate` …; empty for those who have proven none."""
    proof: str = ""
    """The name of what proved it, such as that of a token. It is not a secret."""
    expires_us: int = 0
    """When the proof expires; 0 for never."""
    evidence: bytes = b""
    """Tells the proof from another of the same name. It is not a secret either."""

    def __str__(self) -> str:
        return f"{self.name} ({self.means} {self.proof!r})" if self.means else self.name


NOBODY: Final = Identity(ANONYMOUS)
OURSELVES: Final = Identity(ITSELF)


class Unauthenticated(RemoteError):
    """Somebody presented a proof that does not hold.

    >>> print(Unauthenticated("this token is not known here"))
    this token is not known here
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why
