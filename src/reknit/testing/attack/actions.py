"""What can be tried at a door, and how it is told whether it came about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from reknit.testing.attack.credentials import Credential, Visitor
from reknit.testing.attack.target import Target

PATIENCE_S: Final = 10.0

Try = Callable[[Target, Visitor, int], Awaitable[str]]
"""Try something, under a number that nothing else has. Returns the words of the answer, or raises `Happened`."""
EVERY: Final = (
    Credential.NONE, Credential.WRONG, Credential.EXPIRED, Credential.OTHER, Credential.RIGHT,
)  # fmt: skip
"""All credentials but that of a page of another site."""


class Action(NamedTuple):
    """Something that can be tried at a door."""

    door: str
    name: str
    identity: str
    """Whose credential is the right one."""
    attempt: Try
    topic: str = ""
    """Where its event would be stored, with the number in place of {}; empty if it publishes nothing."""
    credentials: tuple[Credential, ...] = EVERY
    is_jwt: bool = False
    """Whether its tokens are JSON Web Tokens."""
