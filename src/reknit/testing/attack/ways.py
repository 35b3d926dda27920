"""Attacks that no single request shows: taking over what is another's, answering for others, filling what all share.

Each is a function with the sentence that it would break. It returns what it found, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import reknit
from reknit.batch import Batch
from reknit.errors import ReknitError
from reknit.outcome import Code
from reknit.testing.attack.credentials import ANN, BOB, ROOT
from reknit.testing.attack.http_client import request
from reknit.testing.attack.raw_peer import RawPeer
from reknit.testing.attack.target import SECRET, Target
from reknit.wire.links import LinkHello
from reknit.wire.messages import Bye, Refuse, Start, Subscribe, Unsubscribed
from reknit.wire.recovery import Recover, Recovered

SOURCE: Final = b"a source of ann's"[:16]
FLOOD: Final = 200

Find = Callable[[Target], Awaitable[str]]
F = TypeVar("F", bound=Find)


class Way(NamedTuple):
    """An attack."""

    name: str
    promise: str
    find: Find


WAYS: list[Way] = []


def way(promise: str) -> Callable[[F], F]:
    """Declare an attack, and the sentence that it would break."""

    def declare(find: F) -> F:
        WAYS.append(Way(find.__name__, promise, find))
        return find

    return declare
