"""Senders that links share: clients that attach a link for one message each use the same source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from reknit.node.anycast.gateway_api import AnycastSender, OnPath, OnResults, Result

IDLE_SENDERS_MAX = 1_024
"""How many senders wait for the next link to their topic. Each new sender is a source that the node remembers."""


class SenderKey(NamedTuple):
    """Links with equal keys can share a sender."""

    topic: str
    resend_released: bool


MakeSender = Callable[[SenderKey, OnResults, OnPath], AnycastSender]
"""Registers a sender, with a source of its own, at the node."""


class SenderPool:
    """Senders that no link uses, one for each topic."""

    def __init__(self, make: MakeSender) -> None:
        self._make = make
        self._idle: dict[SenderKey, PooledSender] = {}

    def lend(self, key: SenderKey, on_results: OnResults, on_path: OnPath) -> PooledSender:
        """An idle sender, or a new one, for one link."""
        sender = self._idle.pop(key, None) or PooledSender(key, self._make, self._keep)
        sender.assign(on_results, on_path)
        return sender

    def _keep(self, sender: PooledSender) -> bool:
        """Whether the sender was put into the pool: there is none for its topic yet, and the pool is not full."""
        if sender.key in self._idle or len(self._idle) >= IDLE_SENDERS_MAX:
            return False
        self._idle[sender.key] = sender
        return True


class PooledSender:
    """A sender that one link uses at a time."""

    def __init__(self, key: SenderKey, make: MakeSender, keep: Callable[[PooledSender], bool]) -> None:
        self.key = key
        self._keep = keep
        self._on_results: OnResults = _ignore
        self._on_path: OnPath = _ignore
        self._sender = make(key, self._results, self._path)
        self.offer = self._sender.offer

    @property
    def has_path(self) -> bool:
        return self._sender.has_path

    def assign(self, on_results: OnResults, on_path: OnPath) -> None:
        """A link uses the sender from now on."""
        self._on_results, self._on_path = on_results, on_path

    def _results(self, results: Sequence[Result]) -> None:
        self._on_results(results)

    def _path(self, is_there: bool) -> None:
        self._on_path(is_there)

    def close(self) -> None:
        """The link wants no more outcomes. Offered events are still delivered."""
        self._on_results = self._on_path = _ignore
        if self._sender.unsettled or not self._keep(self):
            self._sender.close()


def _ignore(what: object) -> None:
    """No link uses the sender."""
